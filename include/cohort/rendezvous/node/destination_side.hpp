// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a rank does as the destination of values: it asks for them, takes them in order,
/// grants offers, and tells what it takes no more.

#include <cohort/rendezvous/node/node_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// Asks for as many numbers of a key as receives wait for it, and hands values to the table of the
/// step in the order of their numbers.
template <class Any>
class destination_side {
 public:
  /// A receive of any source. It ends through the receiver.
  void receive(step_state& step, const rendezvous_key& key, receiver& one) {
    const auto refuse_it = [&](errc code) {
      one.fail(std::make_exception_ptr(error(code, here_.text_of(step, key) + ": recv")));
      one.end();
    };
    if (here_.is_open()) {
      if (key.destination != here_.rank) return refuse_it(errc::not_local);
      if (key.source < 0 || key.source >= here_.size) return refuse_it(errc::bad_rank);
      const std::uint64_t is = here_.incarnation_of(key.source);
      if (key.source_incarnation != 0 && is != 0 && key.source_incarnation != is) {
        return refuse_it(errc::stale_incarnation);
      }
    }
    one.incarnation = key.source_incarnation;
    const hashed_key whole = hashed(key);
    const receipt got = step.local.receive(whole, one);
    if (!here_.is_open() || key.source == here_.rank) return;
    if (got.origin >= 0) here_.received(step, got.origin, got.credit);
    if (got.waits == 0) return;
    if (here_.out.is_lost(key.source)) return fail_from(step, key.source);
    deliver(step.channel_from(whole), got.waits);
  }
  bool cancel(step_state& step, receiver& one, const std::exception_ptr& why) {
    owned_key key;
    if (!step.local.cancel(one, why, &key)) return false;
    if (here_.is_open() && key.view().source != here_.rank) begin_requests(step, key);
    return true;
  }
  /// Requests that were granted and whose bytes will never come: the rank, the request.
  [[nodiscard]] std::vector<std::pair<int, std::uint64_t>> take_given_up() {
    return requests_.take_given_up();
  }

 protected:
  explicit destination_side(node_state<Any>& all) : here_(all), requests_(all) {}
  ~destination_side() = default;
  /// Some request has no answer yet.
  [[nodiscard]] bool is_requesting() const noexcept { return !requests_.empty(); }

  void on_push(int from, const record& one) {
    const std::uint64_t credit = one.bytes.size() + overhead_of_value;
    step_state* step = here_.look_up(one.step);
    if (step != nullptr && step->ended) return here_.received(*step, from, credit);
    if (here_.cleaned.contains(one.step) || (step == nullptr && here_.closing)) {
      return here_.out.acknowledge(from, one.step, 1, credit);
    }
    if (step == nullptr) step = here_.step(one.step).get();
    incoming& channel = step->channel_from(hashed(key_of(one, from, here_.rank)));
    if (one.number < channel.next) return;  // it came twice
    step_state::slot& place = channel.slots[one.number];
    if (place.kind == slot_kind::here) {
      if (place.value) return;  // it came twice
    } else if (place.id != 0 && place.kind != slot_kind::coming) {
      // Its request is answered with "pushed" later, which nobody needs then.
      if (pending_request* const request = requests_.find(place.id)) request->forget_channel();
    }
    put(place, from, credit, one);
    deliver(channel);
  }
  /// An answer to a request: value, offer, pushed or refusal.
  void on_answer(int from, const record& one) {
    const pending_request* const found = requests_.find(one.id);
    if (found == nullptr || found->peer != from || found->granted != nullptr) return;
    incoming* const channel = found->channel;
    const bool too_large = one.size > here_.options.largest;
    if (one.kind == record_kind::offer && channel != nullptr && !too_large) {
      step_state::slot& place = channel->slots[found->number];
      if (place.kind == slot_kind::offered) return;  // it came twice
      place.kind = slot_kind::offered;
      place.type = one.type;
      place.size = one.size;
      place.dead = one.dead;
      return deliver(*channel);
    }
    const pending_request request = requests_.take(one.id);
    if (one.kind == record_kind::offer) {
      here_.out.write(from, {.kind = record_kind::decline, .id = one.id});
    }
    if (channel == nullptr) {  // the value has nobody to go to
      if (one.kind == record_kind::value) here_.received(*request.step, from, 0);
      return;
    }
    if (one.kind == record_kind::offer) {
      const std::string text = text_of(*channel) + std::to_string(one.size) + " bytes are offered";
      return refuse(*channel, request.number,
                    std::make_exception_ptr(error(errc::count_too_large, text)));
    }
    if (one.kind == record_kind::pushed) {
      const auto at = channel->slots.find(request.number);
      if (at != channel->slots.end() && at->second.kind != slot_kind::here) {
        at->second.kind = slot_kind::coming;
      }
      return;
    }
    if (one.kind == record_kind::value) {
      put(channel->slots[request.number], from, 0, one);
      return deliver(*channel);
    }
    const bool needed = request.number < channel->needed_until;
    if (one.why != reason::withdrawn && needed) {
      return refuse(*channel, request.number, refusal_error(from, text_of(*channel), one));
    }
    channel->slots.erase(request.number);
    if (needed) requests_.make(*channel, request.number);
  }
  void on_watch(int from, const record& one) {
    step_ptr step;
    if (step_state* const found = here_.look_up(one.step)) step = found->shared_from_this();
    const auto end_at_once = [&](reason why) { here_.out.acknowledge_end(from, one.step, why); };
    if (here_.cleaned.contains(one.step)) return end_at_once(reason::cleaned);
    if (step && step->ended) return end_at_once(reason::aborted);
    if (here_.closing) return end_at_once(reason::closed);
    if (!step) step = here_.step(one.step);
    std::uint64_t& expected = step->traffic_with[from].expected;
    expected = std::max(expected, one.size);
  }
  /// The bytes of a large value have come, or will not.
  void has_come(const transfer& what, std::error_code failed) {
    const std::optional<pending_request> request = requests_.take_granted(what.id);
    if (!request) return;
    step_state& step_of = *request->step;
    receiver& one = *request->granted;
    here_.received(step_of, what.peer, 0);
    if (failed && here_.out.is_lost(what.peer)) {
      one.fail(here_.lost_error(step_of, what.peer));
    } else if (failed) {
      one.fail(std::make_exception_ptr(std::system_error(failed, "rendezvous")));
    } else if (const auto why = step_of.local.ended()) {
      one.fail(why);
    } else {
      one.direct = true;
      one.dead = request->dead;
    }
    one.end();
    for (const auto& [step, channel] : std::exchange(without_tag_, {})) {
      if (!step->ended) deliver(*channel);
    }
  }

  /// Receives of the key wait, and nothing has been asked for them yet.
  void begin_requests(step_state& step, const rendezvous_key& key) {
    balance(step.channel_from(hashed(key)));
  }
  /// The incarnations of the ranks are known now.
  void check_incarnations() {
    for (const auto& [id, step] : here_.steps) {
      const auto stale = [&](const rendezvous_key& key, const receiver& one) {
        const std::uint64_t is = here_.incarnation_of(key.source);
        return one.incarnation != 0 && is != 0 && one.incarnation != is;
      };
      step->local.fail_waiting(stale, std::make_exception_ptr(error(errc::stale_incarnation,
                                                                    "step " + std::to_string(id))));
      for (auto& [key, channel] : step->in) balance(channel);
    }
  }
  /// To the ranks that wait to learn it: this rank takes no more values of the step.
  void announce_end(step_state& step, reason why) {
    for (const auto& [other, traffic] : step.traffic_with) {
      if (traffic.expected > traffic.taken) here_.out.acknowledge_end(other, step.id, why);
    }
  }
  /// Nobody here waits for values of this step any more. What has come counts as received, unless
  /// it stays to be reported.
  void forget_incoming(step_state& step, bool keep_values) {
    for (auto& [key, channel] : step.in) {
      const int from = key.view().key.source;
      for (auto at = channel.slots.begin(); at != channel.slots.end();) {
        step_state::slot& one = at->second;
        pending_request* const request = requests_.find(one.id);
        if (one.kind == slot_kind::here) {
          if (keep_values) {
            ++at;
            continue;
          }
          here_.received(step, from, one.value->credit);
        } else if (one.kind == slot_kind::offered) {
          here_.out.write(from, {.kind = record_kind::decline, .id = one.id});
          requests_.erase(one.id);
        } else if (request != nullptr) {
          request->forget_channel();
          if (one.kind == slot_kind::requested) requests_.withdraw(one.id);
        }
        at = channel.slots.erase(at);
      }
      channel.needed_until = channel.next;
    }
    std::erase_if(without_tag_, [&](const auto& each) { return each.first.get() == &step; });
  }
  void forget_all_incoming() { requests_.forget(-1); }
  /// The lost rank sends nothing any more but what this rank has requested in `coming`.
  void give_up_all_but(int lost, const std::vector<std::uint64_t>& coming) {
    requests_.give_up_all_but(lost, coming);
  }
  void lose_source(int lost) {
    requests_.forget(lost);
    for (const auto& [id, step] : here_.steps) {
      for (auto& [key, channel] : step->in) {
        if (key.view().key.source != lost) continue;
        std::erase_if(channel.slots,
                      [](const auto& each) { return each.second.kind != slot_kind::here; });
        channel.needed_until = channel.next;
      }
      fail_from(*step, lost);
    }
  }

 private:
  using incoming = step_state::incoming;
  using slot_kind = step_state::slot_kind;
  static hashed_key hashed(const rendezvous_key& key) { return {key, key_hash()(key)}; }
  static constexpr std::size_t unknown = static_cast<std::size_t>(-1);
  /// Brings what has come to the table, in the order of its numbers, and asks for what receives
  /// then wait for. `waits`: how many receives wait for the key, if that is known.
  void deliver(incoming& channel, std::size_t waits = unknown) {
    step_state& step = *channel.step;
    const hashed_key key = channel.key->view();
    while (!here_.closing && !step.ended) {
      const auto at = channel.slots.find(channel.next);
      if (at == channel.slots.end()) break;
      step_state::slot& one = at->second;
      if (one.kind == slot_kind::here) {
        packet_ptr value = std::move(one.value);
        channel.slots.erase(at);
        ++channel.next;
        const receipt got = step.local.send(key, std::move(value));
        waits = got.waits;
        if (got.origin >= 0) here_.received(step.id, *channel.other, got.origin, got.credit);
      } else if (one.kind == slot_kind::offered) {
        waits = unknown;
        if (!grant(channel, one)) break;
        channel.slots.erase(at);
        ++channel.next;
      } else if (one.kind == slot_kind::refused) {
        const std::exception_ptr why = one.why;
        waits = unknown;
        channel.slots.erase(at);
        step.local.fail_waiting(
            [&](const rendezvous_key& each, const receiver&) { return each.finds_same(key.key); },
            why);
        break;
      } else {
        break;
      }
    }
    balance(channel, waits);
  }
  void put(step_state::slot& place, int from, std::uint64_t credit, const record& one) {
    place.kind = slot_kind::here;
    place.value = packet_ptr(new bytes_packet(one.type, one.dead, one.bytes));
    place.value->origin = from;
    place.value->credit = credit;
  }
  void refuse(incoming& channel, std::uint64_t number, std::exception_ptr why) {
    step_state::slot& place = channel.slots[number];
    place.kind = slot_kind::refused;
    place.why = std::move(why);
    deliver(channel);
  }
  /// Tells the source where an offered value shall go: to the next receive. False if nobody waits.
  bool grant(incoming& channel, step_state::slot& offer) {
    if (!requests_.has_tag()) {
      without_tag_.emplace_back(channel.step->shared_from_this(), &channel);
      return false;
    }
    for (;;) {
      receiver* const found =
          channel.step->local.claim(channel.key->view(), offer.type, offer.size);
      if (found == nullptr) return false;
      std::byte* into = nullptr;
      try {
        into = found->prepare(offer.size);
      } catch (...) {
        found->fail(std::current_exception());
        found->end();
        continue;
      }
      requests_.grant(offer, *found, into);
      return true;
    }
  }
  /// Asks for as many values as receives wait for, and withdraws what nobody waits for.
  void balance(incoming& channel, std::size_t waits = unknown) {
    if (channel.step->ended || here_.closing) return;
    if (waits == unknown) waits = channel.step->local.waiting(channel.key->view());
    const std::uint64_t bound = channel.next + waits;
    for (std::uint64_t n = std::max(channel.needed_until, channel.next); n < bound; ++n) {
      if (!channel.slots.contains(n)) requests_.make(channel, n);
    }
    for (std::uint64_t n = channel.needed_until; n-- > bound;) {
      const auto at = channel.slots.find(n);
      if (at == channel.slots.end() || at->second.kind != slot_kind::requested) continue;
      at->second.kind = slot_kind::withdrawing;
      requests_.withdraw(at->second.id);
    }
    channel.needed_until = bound;
  }
  [[nodiscard]] std::string text_of(const incoming& channel) const {
    return here_.text_of(*channel.step, channel.key->view().key) + ": ";
  }
  void fail_from(step_state& step, int lost) {
    step.local.fail_waiting(
        [&](const rendezvous_key& key, const receiver&) { return key.source == lost; },
        here_.lost_error(step, lost));
  }

  node_state<Any>& here_;
  basic_requests<Any> requests_;
  std::vector<std::pair<step_ptr, incoming*>> without_tag_;
};

}  // namespace cohort::meeting
