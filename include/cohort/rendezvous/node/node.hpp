// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One rank of a rendezvous as a pure state machine.
///
///     node.send(step, key, value);                    // a call of this rank
///     node.receive(from, message);                    // a message of another one
///     for (int to : node.outbox().pending()) node.outbox().take_message(to, bytes);
///     for (const transfer& one : node.take_transfers()) move_bytes(one);

#include <cohort/rendezvous/node/destination_side.hpp>
#include <cohort/rendezvous/node/source_side.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// A rank as the source and as the destination of values, and what concerns both: the beginning,
/// steps and their ends, records that come, ranks that are lost.
///
/// Not synchronised, but for `step_state::local`, which has a lock of its own.
template <class Any = void>
class basic_node : private node_state_owner<Any>,
                   public source_side<Any>,
                   public destination_side<Any> {
 public:
  explicit basic_node(const node_options& options)
      : node_state_owner<Any>{node_state<Any>(options)},
        source_side<Any>(this->owned),
        destination_side<Any>(this->owned),
        here_(this->owned) {}
  basic_node(const basic_node&) = delete;
  basic_node& operator=(const basic_node&) = delete;

  /// From now on it is `rank` of `size`: what was called before is done now.
  void open(int rank, int size, std::uint64_t incarnation) {
    here_.rank = rank;
    here_.size = size;
    here_.incarnation = incarnation;
    here_.out.open(size);
    source_side<Any>::open();
    const auto steps = here_.steps;  // an abort does not change it, but looks at it
    for (const auto& [id, step] : steps) {
      const auto strange = [&](const rendezvous_key& key, const receiver&) {
        return key.destination != rank || key.source < 0 || key.source >= size;
      };
      step->local.fail_waiting(
          strange,
          std::make_exception_ptr(
              error(errc::not_local, "step " + std::to_string(id) +
                                         ": a receive that came before the initialisation is not "
                                         "between ranks of this communicator to rank " +
                                         std::to_string(rank))));
      for (const waiting_key& one : step->local.list()) {
        if (one.key.view().source != rank) this->begin_requests(*step, one.key);
      }
      send_deferred(*step);
      this->check_drained(*step);
    }
  }
  [[nodiscard]] bool is_open() const noexcept { return here_.is_open(); }
  [[nodiscard]] int rank() const noexcept { return here_.rank; }
  [[nodiscard]] int size() const noexcept { return here_.size; }
  /// The incarnations of all ranks, by rank.
  void open_with(std::vector<std::uint64_t> incarnations) {
    here_.incarnations = std::move(incarnations);
    this->check_incarnations();
  }
  [[nodiscard]] std::uint64_t incarnation(int rank) const noexcept {
    return here_.incarnation_of(rank);
  }

  // Steps.
  /// Made if it is not there. Throws errc::step_cleaned or errc::closed.
  step_ptr step(step_id id) { return here_.step(id); }
  /// Null if there is none.
  [[nodiscard]] step_state* look_up(step_id id) const { return here_.look_up(id); }
  [[nodiscard]] std::vector<step_id> steps() const {
    std::vector<step_id> all;
    for (const auto& [id, step] : here_.steps) all.push_back(id);
    return all;
  }
  void abort(step_state& step, const std::exception_ptr& why) {
    const bool derived = is_derived(why);
    if (!step.ended || !derived) {
      step.refusal = reason::aborted;
      step.category.clear();
      step.code = 0;
      try {
        std::rethrow_exception(why);
      } catch (const std::system_error& problem) {
        step.category = problem.code().category().name();
        step.code = problem.code().value();
      } catch (...) {
      }
      step.text = text_of(why);
    }
    end(step, why, derived);
  }
  /// False if there is no such step. Its number is used up either way.
  bool cleanup(step_id id) {
    here_.cleaned.insert(id);
    const auto found = here_.steps.find(id);
    if (found == here_.steps.end()) return false;
    const step_ptr step = std::move(found->second);
    here_.steps.erase(found);
    step->refusal = reason::cleaned;
    end(*step,
        std::make_exception_ptr(error(
            errc::step_cleaned, "rank " + std::to_string(rank()) + ", step " + std::to_string(id))),
        true);
    return true;
  }
  /// Calls `visit(step, key, receiver)` for each receive that waits for its value, and for each who
  /// waits until the step is drained, with a null key. It must not call back.
  template <class Visit>
  void for_each_waiting(Visit visit) const {
    for (const auto& [id, one] : here_.steps) {
      const step_state& step = *one;
      step.local.for_each_waiting(
          [&](const rendezvous_key& key, receiver& each) { visit(step, &key, each); });
      step.drains.for_each([&](receiver& each) { visit(step, nullptr, each); });
    }
  }

  // Its end.
  /// This rank sends and receives no more; what it has sent is still served. Who asks for more is
  /// told `text`, if it is not empty, but no more of it than `longest_reason` [rendezvous C1].
  void close(std::string_view text = {}) {
    if (std::exchange(here_.closing, true)) return;
    here_.out.leave(std::string(text.substr(0, longest_reason)));
    const auto why = std::make_exception_ptr(
        error(is_open() ? errc::closed : errc::not_initialised,
              is_open() ? "the rendezvous has closed"
                        : "the rendezvous was closed before it was initialised"));
    for (const auto& [id, step] : here_.steps) {
      if (!is_open()) {
        end(*step, why, false);
        continue;
      }
      if (step->ended) continue;
      step->local.end(why, true, true);
      this->forget_incoming(*step, true);
      this->forget_outgoing(*step, true);
      this->announce_end(*step, reason::closed);
      this->check_drained(*step);
    }
  }
  [[nodiscard]] bool closing() const noexcept { return here_.closing; }
  /// Requests without an answer and transfers under way.
  [[nodiscard]] bool busy() const noexcept { return this->is_requesting() || this->is_sending(); }
  /// Somebody here waits for another rank.
  [[nodiscard]] bool waits() const noexcept { return this->is_requesting() || this->is_draining(); }
  /// All ranks have closed, and nothing is on its way. Returns what is left.
  std::vector<leaked_value> finish() {
    std::vector<leaked_value> leaks;
    const auto why = std::make_exception_ptr(
        error(errc::closed, "all ranks have closed, and some values have not been received"));
    for (const auto& [id, step] : here_.steps) {
      const auto some = leaks_of(*step);
      leaks.insert(leaks.end(), some.begin(), some.end());
      this->end_drains(*step, why);
    }
    return leaks;
  }
  [[nodiscard]] static std::vector<leaked_value> leaks_of(const step_state& step) {
    std::vector<leaked_value> leaks;
    const auto add = [&](const rendezvous_key& key, std::size_t values, std::size_t bytes) {
      if (values == 0) return;
      leaked_value& one = leaks.emplace_back();
      one.step = step.id;
      one.key = owned_key(key);
      one.values = values;
      one.bytes = bytes;
    };
    for (const waiting_key& one : step.local.list()) add(one.key, one.values, one.bytes);
    for (const auto& [key, value] : step.deferred) add(key, 1, value->bytes().size());
    for (const auto& [key, channel] : step.out) {
      std::size_t bytes = 0;
      for (const step_state::held& one : channel.values) bytes += one.value->bytes().size();
      add(key.view().key, channel.values.size(), bytes);
    }
    for (const auto& [key, channel] : step.in) {
      std::size_t values = 0;
      std::size_t bytes = 0;
      for (const auto& [number, one] : channel.slots) {
        if (one.kind != step_state::slot_kind::here) continue;
        ++values;
        bytes += one.value->bytes().size();
      }
      add(key.view().key, values, bytes);
    }
    return leaks;
  }
  /// That rank sends and answers no more; why, for errors.
  void lose(int peer, std::string why = {}) {
    if (!here_.out.lose(peer, std::move(why))) return;
    this->lose_destination(peer);
    this->lose_source(peer);
  }
  /// That rank has sent what is no message: it is told so, and counts as lost.
  void refuse_message(int from, const std::string& why) {
    if (here_.out.is_lost(from) || here_.broken) return;
    lose(from, "it has sent bytes that are no message: " + why);
    here_.out.write_last(
        from, "it has got bytes from rank " + std::to_string(from) + " that are no message: " + why,
        this->on_their_way(from));
  }
  /// Everything ends with `why`. The other ranks are told, and count this one as lost.
  void break_down(const std::exception_ptr& why) {
    if (here_.broken) return;
    here_.broken = why;
    here_.closing = true;
    for (const auto& [id, step] : here_.steps) {
      step->local.end(why, false, false, &here_.dropped);
      this->end_drains(*step, why);
      step->ended = true;
    }
    this->forget_all_incoming();
    this->forget_all_outgoing();
    // What has been written still leaves: transfers may have begun by it.
    const std::string text = text_of(why);
    for (int to = 0; to < size() && !here_.out.is_closed(); ++to) {
      if (to != rank() && !here_.out.is_lost(to)) {
        here_.out.write_last(to, text, this->on_their_way(to));
      }
    }
    here_.out.close();
  }

  // Messages and transfers.
  using destination_side<Any>::receive;
  void receive(int from, std::span<const std::byte> message) {
    wire::reader in(message);
    while (in.left() != 0 && !here_.out.is_lost(from) && !here_.broken) {
      const auto rest = message.last(in.left());
      const record one = get_record(in);
      if (!in.ok()) return refuse_message(from, explain_record(rest));
      switch (one.kind) {
        case record_kind::push:
          this->on_push(from, one);
          break;
        case record_kind::request:
          this->on_request(from, one);
          break;
        case record_kind::withdraw:
          this->on_withdraw(from, one);
          break;
        case record_kind::value:
        case record_kind::offer:
        case record_kind::pushed:
        case record_kind::refusal:
          this->on_answer(from, one);
          break;
        case record_kind::grant:
        case record_kind::decline:
          this->on_reply(from, one);
          break;
        case record_kind::taken:
          this->on_taken(from, one);
          break;
        case record_kind::watch:
          this->on_watch(from, one);
          break;
        case record_kind::over:
          this->on_over(from, one);
          break;
        case record_kind::broken:
          on_broken(from, one);
          break;
      }
    }
  }
  [[nodiscard]] basic_outbox<Any>& outbox() noexcept { return here_.out; }
  [[nodiscard]] const basic_outbox<Any>& outbox() const noexcept { return here_.out; }
  [[nodiscard]] bool has_transfers() const noexcept { return !here_.transfers.empty(); }
  [[nodiscard]] std::vector<transfer> take_transfers() {
    return std::exchange(here_.transfers, {});
  }
  void transferred(const transfer& what, std::error_code failed) {
    if (what.incoming) return this->has_come(what, failed);
    this->has_gone(what);
  }
  /// Values that are needed no more. Their destructors may call anything, so they are to be
  /// destroyed without locks.
  [[nodiscard]] packet_list& dropped() noexcept { return here_.dropped; }
  /// Without the chunks: these are counted where the bytes are moved.
  [[nodiscard]] const rendezvous_statistics& statistics() const noexcept {
    return here_.statistics;
  }

 private:
  void send_deferred(step_state& step) {
    for (auto& [key, value] : std::exchange(step.deferred, {})) {
      if (step.ended) break;
      try {
        const rendezvous_key whole = key;
        if (whole.source == rank() && whole.destination == rank()) {
          step.local.send(whole, std::move(value));
        } else {
          this->send(step, whole, value);
        }
      } catch (...) {
        abort(step, std::current_exception());
      }
      here_.drop(std::move(value));
    }
  }
  void end(step_state& step, const std::exception_ptr& why, bool derived) {
    for (const receipt& one : step.local.end(why, derived, false, &here_.dropped)) {
      if (one.origin >= 0) here_.received(step, one.origin, one.credit);
    }
    this->end_drains(step, step.local.ended());
    for (auto& [key, value] : step.deferred) here_.drop(std::move(value));
    step.deferred.clear();
    step.ended = true;
    if (!is_open()) return;
    this->forget_incoming(step, false);
    this->forget_outgoing(step, false);
    this->announce_end(step, step.refusal);
    step.unreceived = 0;
    for (auto& [other, traffic] : step.traffic_with) traffic.received = traffic.sent;
  }
  /// As much of it as other ranks are told.
  [[nodiscard]] static std::string text_of(const std::exception_ptr& why) {
    std::string text = "an exception of an unknown type";
    try {
      std::rethrow_exception(why);
    } catch (const std::exception& problem) {
      text = problem.what();
    } catch (...) {
    }
    constexpr std::size_t longest = 1024;
    if (text.size() > longest) text.resize(longest);
    return text;
  }
  void on_broken(int from, const record& one) {
    this->give_up_all_but(from, identifiers_of(one));
    lose(from, std::string(one.cause.text));
  }

  node_state<Any>& here_;
};

using node = basic_node<>;

}  // namespace cohort::meeting
