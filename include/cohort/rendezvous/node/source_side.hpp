// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a rank does as the source of values: it pushes, answers and offers, and tells those
/// who wait until all is received.

#include <cohort/rendezvous/node/node_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// Numbers the values of each key. A small value goes to its destination at once, as long as the
/// credit lasts; any other waits until it is asked for. Every request gets exactly one answer.
template <class Any>
class source_side {
 public:
  /// To another rank. Throws the step's error, errc::duplicate_key or errc::not_local. Takes the
  /// value only if it has to keep it.
  void send(step_state& step, const rendezvous_key& key, packet_ptr& value) {
    if (step.local.has_ended()) std::rethrow_exception(step.local.ended());
    const int to = key.destination;
    if (key.source != here_.rank || to < 0 || to >= here_.size) {
      throw error(errc::not_local, here_.text_of(step, key) + ": send");
    }
    outgoing& channel = step.channel_to(key);
    if (here_.options.single_use && channel.next != 0) {
      throw error(errc::duplicate_key, "'" + to_string(key) + "' has been sent before");
    }
    if (here_.out.is_lost(to)) std::rethrow_exception(here_.lost_error(step, to));
    if (packet_ptr encoded = value->encode()) {
      here_.drop(std::move(value));
      value = std::move(encoded);
    }
    const std::uint64_t number = channel.next++;
    if (channel.other->drops) return;
    ++channel.other->sent;
    if (!channel.other->over) ++step.unreceived;
    if (!step.drains.empty()) watch(step, to, *channel.other);
    for (auto at = channel.requests.begin(); at != channel.requests.end(); ++at) {
      if (at->number != number) continue;
      const std::uint64_t id = at->id;
      channel.requests.erase(at);
      parked_.erase({to, id});
      return answer(step, channel, to, id, number, value);
    }
    const std::size_t size = value->bytes().size();
    const std::uint64_t cost = size + overhead_of_value;
    if (size > here_.options.push_limit || cost > there(to).credit) {
      channel.values.push_back({number, std::move(value)});
      return;
    }
    there(to).credit -= cost;
    ++here_.statistics.pushed;
    record push = record_of(record_kind::push, step.id, key, number);
    push.type = value->type;
    push.dead = value->dead;
    push.bytes = value->bytes();
    here_.out.write(to, push);
  }
  void drain(step_state& step, receiver& one) {
    if (const auto why = step.local.ended(); why && !here_.closing) {
      one.fail(why);
      return one.end();
    }
    for (auto& [other, traffic] : step.traffic_with) {
      if (traffic.over || traffic.sent == traffic.received) continue;
      if (here_.out.is_lost(other)) {
        one.fail(here_.lost_error(step, other));
        return one.end();
      }
      watch(step, other, traffic);
    }
    step.drains.push(one);
    step.drain_waits.store(true);  // before the look at the table, which has a lock
    ++draining_;
    check_drained(step);
  }
  bool stop_draining(step_state& step, receiver& one, const std::exception_ptr& why) {
    if (!step.drains.end(one, why)) return false;
    --draining_;
    return true;
  }
  /// The local table has been emptied, or another rank has taken values: ends those who wait, if
  /// that has drained the step.
  void check_drained(step_state& step) {
    if (step.drains.empty() || step.unreceived != 0 || !step.deferred.empty()) return;
    if (!here_.closing && step.local.own_values() != 0) return;
    end_drains(step, nullptr);
  }

 protected:
  using outgoing = step_state::outgoing;

  explicit source_side(node_state<Any>& all) : here_(all) {}
  ~source_side() = default;
  void open() {
    there_.resize(static_cast<std::size_t>(here_.size));
    for (destination& one : there_) one.credit = here_.options.credit;
  }
  [[nodiscard]] bool is_sending() const noexcept { return !sending_.empty(); }
  [[nodiscard]] bool is_draining() const noexcept { return draining_ != 0; }

  void on_request(int from, const record& one) {
    if (!there(from).seen.insert(one.id)) return;  // it came twice
    const auto refuse = [&](reason why, const step_state* step = nullptr) {
      here_.out.refuse(from, one.id, why, step);
    };
    if (one.incarnation != 0 && here_.incarnation != 0 && one.incarnation != here_.incarnation) {
      return refuse(reason::stale);
    }
    if (here_.cleaned.contains(one.step)) return refuse(reason::cleaned);
    step_state* step = here_.look_up(one.step);
    if (here_.closing && step == nullptr) return refuse(reason::closed);
    if (step == nullptr) step = here_.step(one.step).get();
    if (step->ended) return refuse(step->refusal, step);
    outgoing& channel = step->channel_to(key_of(one, here_.rank, from));
    if (one.number >= channel.next) {
      if (here_.closing) return refuse(reason::closed);
      channel.requests.push_back({from, one.id, one.number});
      parked_[{from, one.id}] = &channel;
      return;
    }
    const auto at = find_held(channel, one.number);
    if (at == channel.values.end() || at->number != one.number) {
      return here_.out.write(from, {.kind = record_kind::pushed, .id = one.id});
    }
    packet_ptr value = std::move(at->value);
    channel.values.erase(at);
    answer(*step, channel, from, one.id, one.number, value);
    here_.drop(std::move(value));
  }
  void on_withdraw(int from, const record& one) {
    const auto found = parked_.find({from, one.id});
    if (found == parked_.end()) return;  // it has been answered
    std::erase_if(found->second->requests, [&](const step_state::parked& each) {
      return each.peer == from && each.id == one.id;
    });
    parked_.erase(found);
    here_.out.refuse(from, one.id, reason::withdrawn);
  }
  /// A reply to an offer: grant or decline.
  void on_reply(int from, const record& one) {
    const auto found = offers_.find({from, one.id});
    if (found == offers_.end()) return;
    offered what = std::move(found->second);
    offers_.erase(found);
    if (one.kind == record_kind::grant) {
      ++here_.statistics.granted;
      const std::span<const std::byte> bytes = what.value->bytes();
      here_.transfers.push_back(
          {from, static_cast<int>(one.size), false, nullptr, bytes.data(), bytes.size(), one.id});
      sending_[{from, one.id}] = std::move(what.value);
      return;
    }
    if (what.channel == nullptr || what.channel->other->drops)
      return here_.drop(std::move(what.value));
    what.channel->values.insert(find_held(*what.channel, what.number),
                                step_state::held{what.number, std::move(what.value)});
  }
  void on_taken(int from, const record& one) {
    std::uint64_t& credit = there(from).credit;
    credit += std::min(one.credit, here_.options.credit - std::min(here_.options.credit, credit));
    step_state* const step = here_.look_up(one.step);
    if (step == nullptr) return;
    const auto found = step->traffic_with.find(from);
    if (found == step->traffic_with.end()) return;
    step_state::traffic& traffic = found->second;
    const std::uint64_t values = std::min(one.size, traffic.sent - traffic.received);
    traffic.received += values;
    if (traffic.over) return;
    step->unreceived -= values;
    check_drained(*step);
  }
  /// Nobody there will ask for values of the step any more. If that is because the rank has closed,
  /// its values are kept, for they are reported.
  void on_over(int from, const record& one) {
    step_state* const step = here_.look_up(one.step);
    if (step == nullptr || step->ended) return;
    const step_ptr keep = step->shared_from_this();
    step_state::traffic& traffic = step->traffic_with[from];
    if (one.why != reason::closed && !std::exchange(traffic.drops, true))
      forget_values(*step, from);
    if (std::exchange(traffic.over, true)) return;
    step->unreceived -= traffic.sent - traffic.received;
    check_drained(*step);
  }
  void has_gone(const transfer& what) {
    const auto sent = sending_.find({what.peer, what.id});
    if (sent == sending_.end()) return;
    here_.drop(std::move(sent->second));
    sending_.erase(sent);
  }

  void end_drains(step_state& step, const std::exception_ptr& why) {
    draining_ -= step.drains.size();
    step.drains.end_all(why);
  }
  /// Requests are refused. Values are dropped unless `keep_values`.
  void forget_outgoing(step_state& step, bool keep_values) {
    for (auto& [key, channel] : step.out) {
      for (const step_state::parked& one : channel.requests) {
        parked_.erase({one.peer, one.id});
        here_.out.refuse(one.peer, one.id, step.ended ? step.refusal : reason::closed, &step);
      }
      channel.requests.clear();
      if (!keep_values) forget_values(channel);
    }
    if (keep_values) return;
    for (auto& [ref, one] : offers_) {
      if (one.step.get() == &step) one.channel = nullptr;
    }
  }
  void forget_all_outgoing() {
    parked_.clear();
    for (auto& [ref, one] : offers_) here_.drop(std::move(one.value));
    offers_.clear();
  }
  void lose_destination(int lost) {
    std::erase_if(parked_, [&](const auto& each) { return each.first.first == lost; });
    for (auto at = offers_.begin(); at != offers_.end();) {
      if (at->first.first != lost) {
        ++at;
        continue;
      }
      here_.drop(std::move(at->second.value));
      at = offers_.erase(at);
    }
    for (const auto& [id, step] : here_.steps) {
      for (auto& [key, channel] : step->out) {
        if (key.view().key.destination == lost) channel.requests.clear();
      }
      forget_values(*step, lost);
      const auto traffic = step->traffic_with.find(lost);
      if (traffic != step->traffic_with.end() && !traffic->second.over &&
          traffic->second.sent != traffic->second.received) {
        end_drains(*step, here_.lost_error(*step, lost));
      }
    }
  }
  /// Requests of that rank whose values are on their way to it.
  [[nodiscard]] std::vector<std::uint64_t> on_their_way(int to) const {
    std::vector<std::uint64_t> ids;
    for (const auto& [ref, value] : sending_) {
      if (ref.first == to) ids.push_back(ref.second);
    }
    return ids;
  }

 private:
  using request_ref = std::pair<int, std::uint64_t>;
  struct request_hash {
    std::size_t operator()(const request_ref& one) const noexcept {
      return (static_cast<std::size_t>(one.first) << 40U) ^ one.second;
    }
  };
  struct destination {
    std::uint64_t credit = 0;          // that this rank has left there
    interval_set<std::uint64_t> seen;  // requests from there
  };
  struct offered {
    step_ptr step;
    outgoing* channel;  // null: the step has ended
    std::uint64_t number;
    packet_ptr value;
  };

  [[nodiscard]] destination& there(int rank) { return there_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] static auto find_held(outgoing& channel, std::uint64_t number) {
    return std::lower_bound(
        channel.values.begin(), channel.values.end(), number,
        [](const step_state::held& held, std::uint64_t wanted) { return held.number < wanted; });
  }
  void answer(step_state& step, outgoing& channel, int to, std::uint64_t id, std::uint64_t number,
              packet_ptr& value) {
    record one{.kind = record_kind::value, .id = id, .type = value->type, .dead = value->dead};
    const std::span<const std::byte> bytes = value->bytes();
    if (bytes.size() <= here_.options.inline_limit) {
      ++here_.statistics.pulled;
      one.bytes = bytes;
      return here_.out.write(to, one);
    }
    one.kind = record_kind::offer;
    one.size = bytes.size();
    here_.out.write(to, one);
    offers_[{to, id}] = {step.shared_from_this(), &channel, number, std::move(value)};
  }
  /// Asks the rank for an answer if it stops taking values of the step before it has all.
  void watch(step_state& step, int to, step_state::traffic& one) {
    if (one.over || one.watched == one.sent) return;
    one.watched = one.sent;
    here_.out.write(to, {.kind = record_kind::watch, .step = step.id, .size = one.sent});
  }
  void forget_values(outgoing& channel) {
    for (step_state::held& one : channel.values) here_.drop(std::move(one.value));
    channel.values.clear();
  }
  void forget_values(step_state& step, int to) {
    for (auto& [key, channel] : step.out) {
      if (key.view().key.destination == to) forget_values(channel);
    }
  }

  node_state<Any>& here_;
  std::vector<destination> there_;
  std::unordered_map<request_ref, outgoing*, request_hash, std::equal_to<request_ref>,
                     progress::pool_allocator<std::pair<const request_ref, outgoing*>>>
      parked_;  // of others, without a value
  short_map<request_ref, offered> offers_;
  short_map<request_ref, packet_ptr> sending_;
  std::size_t draining_ = 0;
};

}  // namespace cohort::meeting
