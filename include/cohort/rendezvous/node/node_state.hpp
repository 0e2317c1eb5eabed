// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the two sides of a node share: what is to be said to other ranks, and the steps.

#include <cohort/rendezvous/node/step_state.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// What this rank has to say to each other one: records, and what it owes, which travels with them.
template <class Any>
class basic_outbox {
 public:
  void open(int size) { peers_ = std::vector<peer_state>(static_cast<std::size_t>(size)); }

  void say(int to, const record& what) {
    peer_state& one = peer(to);
    if (one.lost || silent_) return;
    wire::writer out(one.out);
    put(out, what);
    speaks(to, one);
  }
  /// That values have been received, which goes with the next message.
  void owe(int to, step_id step, std::uint64_t values, std::uint64_t credit) {
    peer_state& one = peer(to);
    if (one.lost || silent_) return;
    debt& owed = one.owes(step);
    owed.values += values;
    owed.credit += credit;
    speaks(to, one);
  }
  /// That this rank takes no more values of the step.
  void owe_end(int to, step_id step, reason why) {
    peer_state& one = peer(to);
    if (one.lost || silent_) return;
    debt& owed = one.owes(step);
    owed.over = true;
    owed.why = why;
    speaks(to, one);
  }
  /// That a request gets no value; with the step's error, if it is aborted.
  void refuse(int to, std::uint64_t id, reason why, const step_state* step = nullptr) {
    record one{.kind = record_kind::refusal, .id = id, .why = why};
    if (why == reason::aborted && step != nullptr) {
      one.cause = {step->category, step->code, step->text};
    }
    say(to, one);
  }
  /// The last that a rank hears, even if it is lost: why, and which requests are answered by bytes
  /// that are on their way all the same.
  void say_last(int to, const std::string& why, const std::vector<std::uint64_t>& on_their_way) {
    peer_state& one = peer(to);
    one.owed.clear();
    wire::writer out(one.out);
    put(out, record{.kind = record_kind::broken,
                    .cause = {{}, 0, why},
                    .bytes = std::as_bytes(std::span(on_their_way))});
    speaks(to, one);
  }
  /// All have closed and been answered: nothing more needs to be said.
  void fall_silent() noexcept { silent_ = true; }
  [[nodiscard]] bool is_silent() const noexcept { return silent_; }

  /// Nothing that was to be said to that rank is. False if it was lost before.
  bool lose(int rank, std::string why) {
    peer_state& gone = peer(rank);
    if (std::exchange(gone.lost, true)) return false;
    gone.why_lost = std::move(why);
    gone.out.clear();
    gone.owed.clear();
    return true;
  }
  [[nodiscard]] bool is_lost(int rank) const noexcept { return peer(rank).lost; }
  [[nodiscard]] const std::string& why_lost(int rank) const noexcept { return peer(rank).why_lost; }

  [[nodiscard]] bool has_message(int to) const noexcept {
    return has_urgent(to) || !peer(to).owed.empty();
  }
  /// Whether it has more than acknowledgements to say.
  [[nodiscard]] bool has_urgent(int to) const noexcept { return !peer(to).out.empty(); }
  /// Appends the message to `out`; false if there is none.
  bool take_message(int to, std::vector<std::byte>& out);
  /// Ranks with something to be told, in no order; some may have been told meanwhile.
  [[nodiscard]] std::vector<int>& speaking() noexcept { return speaking_; }

 private:
  struct debt {
    std::uint64_t values = 0;
    std::uint64_t credit = 0;
    bool over = false;  // and no more will be
    reason why = reason::closed;
  };
  struct peer_state {
    /// What is owed in that step.
    debt& owes(step_id step) {
      for (auto at = owed.rbegin(); at != owed.rend(); ++at) {
        if (at->first == step) return at->second;
        if (at - owed.rbegin() == nearby && owed.size() < many) break;
      }
      return owed.emplace_back(step, debt()).second;
    }
    static constexpr std::ptrdiff_t nearby = 8;
    static constexpr std::size_t many = 64;

    std::vector<std::byte> out;
    std::vector<std::pair<step_id, debt>> owed;  // a step may be there more than once
    bool speaks = false;
    bool lost = false;
    std::string why_lost;
  };

  [[nodiscard]] peer_state& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const peer_state& peer(int rank) const {
    return peers_[static_cast<std::size_t>(rank)];
  }
  void speaks(int to, peer_state& one) {
    if (!std::exchange(one.speaks, true)) speaking_.push_back(to);
  }

  std::vector<peer_state> peers_;
  std::vector<int> speaking_;
  bool silent_ = false;
};

template <class Any>
bool basic_outbox<Any>::take_message(int to, std::vector<std::byte>& out) {
  peer_state& one = peer(to);
  one.speaks = false;
  wire::writer writer(one.out);
  for (const auto& [step, what] : one.owed) {
    if (what.values != 0) {
      put(writer, record{.kind = record_kind::taken,
                         .step = step,
                         .size = what.values,
                         .credit = what.credit});
    }
    if (what.over) put(writer, record{.kind = record_kind::over, .step = step, .why = what.why});
  }
  one.owed.clear();
  if (one.out.empty()) return false;
  out.insert(out.end(), one.out.begin(), one.out.end());
  one.out.clear();
  return true;
}

/// Who this rank is, its steps, and what waits to be taken by who drives it.
template <class Any>
struct node_state {
  explicit node_state(const node_options& with) : options(with) {}

  [[nodiscard]] bool is_open() const noexcept { return rank >= 0; }
  /// What the process of a rank is known by; 0 if that is not known.
  [[nodiscard]] std::uint64_t incarnation_of(int of) const noexcept {
    if (of == rank) return incarnation;
    const auto index = static_cast<std::size_t>(of);
    return of >= 0 && index < incarnations.size() ? incarnations[index] : 0;
  }

  /// Made if it is not there. Throws errc::step_cleaned or errc::closed.
  [[nodiscard]] step_ptr step(step_id id);
  /// Null if there is none.
  [[nodiscard]] step_state* look_up(step_id id) const {
    const auto found = steps.find(id);
    return found == steps.end() ? nullptr : found->second.get();
  }

  /// A value of another rank counts as received.
  void took(step_id step, step_state::link& link, int from, std::uint64_t credit) {
    ++link.taken;
    out.owe(from, step, 1, credit);
  }
  void took(step_state& step, int from, std::uint64_t credit) {
    took(step.id, step.links[from], from, credit);
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
  rendezvous_statistics statistics;  // without the chunks, which who moves the bytes counts
  bool closing = false;
  std::exception_ptr broken;
};

/// Made before the sides of a node, which refer to it.
template <class Any>
struct node_state_owner {
  node_state<Any> owned;
};

template <class Any>
step_ptr node_state<Any>::step(step_id id) {
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

}  // namespace cohort::meeting
