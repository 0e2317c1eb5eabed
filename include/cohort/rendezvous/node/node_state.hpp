// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the two sides of a node share: what waits to be sent to other ranks, the steps, and
/// the requests that have no answer yet.

#include <cohort/rendezvous/node/step_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// What waits to be sent to each other rank: records, and acknowledgements, which are summed up
/// until the next message takes them along.
template <class Any>
class basic_outbox {
 public:
  void open(int size) { peers_ = std::vector<peer_state>(static_cast<std::size_t>(size)); }

  void write(int to, const record& what) {
    peer_state& one = peer(to);
    if (one.lost || closed_) return;
    wire::writer out(one.out);
    put(out, what);
    note_pending(to, one);
  }
  /// Values have been received.
  void acknowledge(int to, step_id step, std::uint64_t values, std::uint64_t credit) {
    peer_state& one = peer(to);
    if (one.lost || closed_) return;
    acknowledgement& all = one.acknowledgement_of(step);
    all.values += values;
    all.credit += credit;
    note_pending(to, one);
  }
  /// This rank takes no more values of the step.
  void acknowledge_end(int to, step_id step, reason why) {
    peer_state& one = peer(to);
    if (one.lost || closed_) return;
    acknowledgement& all = one.acknowledgement_of(step);
    all.over = true;
    all.why = why;
    note_pending(to, one);
  }
  /// A request gets no value, and why; for an aborted step, with its error.
  void refuse(int to, std::uint64_t id, reason why, const step_state* step = nullptr) {
    record one{.kind = record_kind::refusal, .id = id, .why = why};
    if (why == reason::aborted && step != nullptr) {
      one.cause = {step->category, step->code, step->text};
    } else if (why == reason::closed && !why_left_.empty()) {
      one.why = reason::left;
      one.cause.text = why_left_;
    }
    write(to, one);
  }
  /// Whose request is refused because this rank has closed is told this, unless it is empty
  /// [rendezvous C1].
  void leave(std::string why) noexcept { why_left_ = std::move(why); }
  /// The last record to a rank, even if it is lost: why, and which requests are answered by bytes
  /// that are on their way all the same.
  void write_last(int to, const std::string& why, const std::vector<std::uint64_t>& on_their_way) {
    peer_state& one = peer(to);
    one.acknowledgements.clear();
    wire::writer out(one.out);
    put(out, record{.kind = record_kind::broken,
                    .cause = {{}, 0, why},
                    .bytes = std::as_bytes(std::span(on_their_way))});
    note_pending(to, one);
  }
  /// All have closed and been answered: nothing more needs to be sent.
  void close() noexcept { closed_ = true; }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  /// What was to be sent to that rank is dropped. False if it was lost before.
  bool lose(int rank, std::string why) {
    peer_state& gone = peer(rank);
    if (std::exchange(gone.lost, true)) return false;
    gone.why_lost = std::move(why);
    gone.out.clear();
    gone.acknowledgements.clear();
    return true;
  }
  [[nodiscard]] bool is_lost(int rank) const noexcept { return peer(rank).lost; }
  [[nodiscard]] const std::string& why_lost(int rank) const noexcept { return peer(rank).why_lost; }

  /// Whether more than acknowledgements waits for that rank.
  [[nodiscard]] bool has_urgent(int to) const noexcept { return !peer(to).out.empty(); }
  /// Appends the message to `out`; false if there is none.
  bool take_message(int to, std::vector<std::byte>& out) {
    peer_state& one = peer(to);
    one.pending = false;
    wire::writer writer(one.out);
    for (const auto& [step, what] : one.acknowledgements) {
      if (what.values != 0) {
        put(writer, record{.kind = record_kind::taken,
                           .step = step,
                           .size = what.values,
                           .credit = what.credit});
      }
      if (what.over) put(writer, record{.kind = record_kind::over, .step = step, .why = what.why});
    }
    one.acknowledgements.clear();
    if (one.out.empty()) return false;
    out.insert(out.end(), one.out.begin(), one.out.end());
    one.out.clear();
    return true;
  }
  /// Ranks for which something waits, in no order; for some it may have been taken meanwhile.
  [[nodiscard]] std::vector<int>& pending() noexcept { return pending_; }

 private:
  struct acknowledgement {
    std::uint64_t values = 0;
    std::uint64_t credit = 0;
    bool over = false;  // and no more will be
    reason why = reason::closed;
  };
  struct peer_state {
    /// What is acknowledged of that step in the next message.
    acknowledgement& acknowledgement_of(step_id step) {
      for (auto at = acknowledgements.rbegin(); at != acknowledgements.rend(); ++at) {
        if (at->first == step) return at->second;
        if (at - acknowledgements.rbegin() == nearby && acknowledgements.size() < many) break;
      }
      return acknowledgements.emplace_back(step, acknowledgement()).second;
    }
    static constexpr std::ptrdiff_t nearby = 8;
    static constexpr std::size_t many = 64;

    std::vector<std::byte> out;
    std::vector<std::pair<step_id, acknowledgement>>
        acknowledgements;  // a step may be there more than once
    bool pending = false;
    bool lost = false;
    std::string why_lost;
  };

  [[nodiscard]] peer_state& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const peer_state& peer(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }
  void note_pending(int to, peer_state& one) {
    if (!std::exchange(one.pending, true)) pending_.push_back(to);
  }

  std::vector<peer_state> peers_;
  std::vector<int> pending_;
  std::string why_left_;  // of this rank
  bool closed_ = false;
};

/// Who this rank is, its steps, and what the driver of the node collects.
template <class Any>
struct node_state {
  explicit node_state(const node_options& with) : options(with) {}

  [[nodiscard]] bool is_open() const noexcept { return rank >= 0; }
  /// The incarnation of a rank; 0 if it is not known.
  [[nodiscard]] std::uint64_t incarnation_of(int of) const noexcept {
    if (of == rank) return incarnation;
    const auto index = static_cast<std::size_t>(of);
    return of >= 0 && index < incarnations.size() ? incarnations[index] : 0;
  }

  /// Made if it is not there. Throws errc::step_cleaned or errc::closed.
  [[nodiscard]] step_ptr step(step_id id) {
    if (broken) std::rethrow_exception(broken);
    if (cleaned.contains(id)) throw error(errc::step_cleaned, "step " + std::to_string(id));
    if (closing) throw error(errc::closed, "step " + std::to_string(id));
    step_ptr& one = steps[id];
    if (!one) {
      one = std::allocate_shared<step_state>(progress::pool_allocator<step_state>(), id,
                                             options.single_use);
    }
    return one;
  }
  /// Null if there is none.
  [[nodiscard]] step_state* look_up(step_id id) const {
    const auto found = steps.find(id);
    return found == steps.end() ? nullptr : found->second.get();
  }

  /// A value of another rank counts as received.
  void received(step_id step, step_state::traffic& traffic, int from, std::uint64_t credit) {
    ++traffic.taken;
    out.acknowledge(from, step, 1, credit);
  }
  void received(step_state& step, int from, std::uint64_t credit) {
    received(step.id, step.traffic_with[from], from, credit);
  }
  /// A value is needed no more. One whose destructor may call anything is destroyed without locks.
  void drop(packet_ptr value) {
    if (value && value->foreign) dropped.push(std::move(value));
  }

  [[nodiscard]] std::string text_of(const step_state& step, const rendezvous_key& key) const {
    return "rank " + std::to_string(rank) + ", step " + std::to_string(step.id) + ", '" +
           to_string(key) + "'";
  }
  [[nodiscard]] std::exception_ptr lost_error(const step_state& step, int lost) const {
    std::string text = "rank " + std::to_string(rank) + ", step " + std::to_string(step.id);
    text += ": rank " + std::to_string(lost) + " is lost";
    if (const std::string& why = out.why_lost(lost); !why.empty()) text += ": " + why;
    return std::make_exception_ptr(peer_lost_error({lost}, text));
  }

  const node_options options;
  int rank = -1;
  int size = 0;
  std::uint64_t incarnation = 0;
  std::vector<std::uint64_t> incarnations;  // of all ranks, once they are known
  basic_outbox<Any> out;
  pooled_map<step_id, step_ptr> steps;
  interval_set<step_id> cleaned;
  std::vector<transfer> transfers;
  packet_list dropped;
  rendezvous_statistics statistics;  // without the chunks
  bool closing = false;
  std::exception_ptr broken;
};

/// Made before the sides of a node, which refer to it.
template <class Any>
struct node_state_owner {
  node_state<Any> owned;
};

/// A request for one number of a key.
struct pending_request {
  int peer;
  step_state* step;
  step_state::incoming* channel;  // null: nobody needs the answer
  std::uint64_t number;
  step_ptr keep = nullptr;  // of the step, once it has no channel
  receiver* granted = nullptr;
  int tag = 0;
  bool dead = false;

  void forget_channel() {
    channel = nullptr;
    keep = step->shared_from_this();
  }
};

/// The requests of this rank that have no answer yet, and the tags of those that were granted.
template <class Any>
class basic_requests {
 public:
  explicit basic_requests(node_state<Any>& all) : here_(all) {}

  [[nodiscard]] bool empty() const noexcept { return requests_.empty(); }
  /// Null if it has been answered.
  [[nodiscard]] pending_request* find(std::uint64_t id) {
    const auto found = requests_.find(id);
    return found == requests_.end() ? nullptr : &found->second;
  }
  /// It is answered, and no request any more.
  pending_request take(std::uint64_t id) {
    const auto found = requests_.find(id);
    pending_request one = std::move(found->second);
    requests_.erase(found);
    return one;
  }
  void erase(std::uint64_t id) { requests_.erase(id); }

  void make(step_state::incoming& channel, std::uint64_t number) {
    const rendezvous_key key = channel.key->view().key;
    record one = record_of(record_kind::request, channel.step->id, key, number);
    one.incarnation = here_.incarnation_of(key.source);
    one.id = next_id_++;
    channel.slots[number].id = one.id;
    requests_[one.id] = pending_request{key.source, channel.step, &channel, number};
    here_.out.write(key.source, one);
  }
  void withdraw(std::uint64_t id) {
    here_.out.write(requests_.at(id).peer, {.kind = record_kind::withdraw, .id = id});
  }

  // The bytes of an offer that is granted travel under a tag that nothing else uses.
  [[nodiscard]] bool has_tag() const noexcept {
    return !free_tags_.empty() || next_tag_ <= here_.options.tags;
  }
  /// *Requires* a tag.
  void grant(const step_state::slot& offer, receiver& to, std::byte* into) {
    pending_request& one = requests_.at(offer.id);
    one.granted = &to;
    one.forget_channel();
    one.dead = offer.dead;
    if (free_tags_.empty()) {
      one.tag = next_tag_++;
    } else {
      one.tag = free_tags_.back();
      free_tags_.pop_back();
    }
    here_.transfers.push_back({one.peer, one.tag, true, into, nullptr, offer.size, offer.id});
    here_.out.write(
        one.peer,
        {.kind = record_kind::grant, .id = offer.id, .size = static_cast<std::uint64_t>(one.tag)});
  }
  /// The bytes have come, or never will. Nothing if they were not granted.
  std::optional<pending_request> take_granted(std::uint64_t id) {
    if (find(id) == nullptr) return std::nullopt;
    pending_request one = take(id);
    free_tags_.push_back(one.tag);
    return one;
  }

  /// Forgets the requests to this rank or, if it is -1, all. Those that were granted stay until
  /// their transfers end.
  void forget(int to) {
    std::erase_if(requests_, [to](const auto& each) {
      return (to < 0 || each.second.peer == to) && each.second.granted == nullptr;
    });
  }
  /// Of the values that the lost rank was to send, only those of `coming` will come.
  void give_up_all_but(int lost, const std::vector<std::uint64_t>& coming) {
    for (const auto& [id, one] : requests_) {
      if (one.peer != lost || one.granted == nullptr) continue;
      if (std::find(coming.begin(), coming.end(), id) == coming.end()) {
        given_up_.emplace_back(lost, id);
      }
    }
  }
  [[nodiscard]] std::vector<std::pair<int, std::uint64_t>> take_given_up() {
    return std::exchange(given_up_, {});
  }

 private:
  node_state<Any>& here_;
  pooled_map<std::uint64_t, pending_request> requests_;
  std::vector<std::pair<int, std::uint64_t>> given_up_;
  std::vector<int> free_tags_;
  int next_tag_ = 1;
  std::uint64_t next_id_ = 1;
};

/// The error of a receive whose request the rank has refused; `text` is of the receive.
template <class Any = void>
[[nodiscard]] std::exception_ptr refusal_error(int from, const std::string& text,
                                               const record& refusal) {
  switch (refusal.why) {
    case reason::aborted: {
      std::error_code cause;
      for (const std::error_category* each :
           {&cohort_category(), &std::generic_category(), &std::system_category()}) {
        if (refusal.cause.category != each->name()) continue;
        cause = std::error_code(static_cast<int>(refusal.cause.code), *each);
      }
      return std::make_exception_ptr(step_aborted_error(
          from, cause,
          text + "rank " + std::to_string(from) + ": " + std::string(refusal.cause.text)));
    }
    case reason::cleaned:
      return std::make_exception_ptr(error(errc::step_cleaned, text + "on the sending rank"));
    case reason::stale:
      return std::make_exception_ptr(error(errc::stale_incarnation, text + "recv"));
    case reason::left:
      return std::make_exception_ptr(
          peer_lost_error({from}, text + "needs rank " + std::to_string(from) +
                                      ", which has left: " + std::string(refusal.cause.text)));
    case reason::closed:
    case reason::withdrawn:
      break;
  }
  return std::make_exception_ptr(error(errc::closed, text + "the sending rank has closed"));
}

}  // namespace cohort::meeting
