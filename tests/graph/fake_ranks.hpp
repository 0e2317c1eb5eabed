// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Ranks of one process that pass each other packets, and run tasks that add numbers.

#include <cohort/graph/machine/endpoint.hpp>
#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace graph_test {

using namespace cohort::graph::machine;
using cohort::errc;

/// A number, padded to some bytes.
class number final : public content {
 public:
  explicit number(std::int64_t what, std::size_t size = 8, bool travels = true)
      : bytes_(std::max<std::size_t>(size, 8)), travels_(travels) {
    std::memcpy(bytes_.data(), &what, sizeof what);
  }
  [[nodiscard]] bool travels() const noexcept override { return travels_; }
  [[nodiscard]] std::span<const std::byte> bytes() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  bool travels_;
};
inline content_ptr make(std::int64_t what, std::size_t size = 8, bool travels = true) {
  return content_ptr(new number(what, size, travels));
}
/// What has come from elsewhere may be shorter.
inline std::int64_t number_in(std::span<const std::byte> bytes) {
  std::int64_t one = 0;
  if (!bytes.empty()) std::memcpy(&one, bytes.data(), std::min(bytes.size(), sizeof one));
  return one;
}
inline std::int64_t number_in(const content_ptr& what) { return number_in(what->bytes()); }

/// What a task does: it adds its function's number, its arguments and its inputs. 99 throws.
inline constexpr std::uint32_t throws = 99;
/// Makes a value of 20 000 bytes.
inline constexpr std::uint32_t makes_large = 98;
/// Makes one that does not travel.
inline constexpr std::uint32_t stays = 97;

struct used {
  std::string task;
  use_kind use = use_kind::plain;
};
inline used take(std::string task) { return {std::move(task), use_kind::take}; }
inline used after(std::string task) { return {std::move(task), use_kind::after}; }
inline used plain(std::string task) { return {std::move(task), use_kind::plain}; }

struct awaited {
  content_ptr what;
  bool may_move = false;
  [[nodiscard]] bool ended() const { return static_cast<bool>(what); }
};

/// Tasks are called by a letter and the number of their home: "a1". Scopes by a number.
class fake_ranks {
 public:
  struct scope_state {
    std::unique_ptr<node> machine;
    std::map<await_number, std::shared_ptr<awaited>> awaits;
    std::map<await_number, producer> helpers;  // producers that end with their await
    std::vector<window_report> ends;
    std::vector<task_index> running;
    std::vector<std::string> ran, moved, warnings;
    bool cancelled = false;
    bool resting = false;  // its program waits for the end of the window
  };
  struct rank_state {
    std::unique_ptr<endpoint> point;
    std::map<int, scope_state> scopes;
    bool dead = false;
  };

  explicit fake_ranks(int count, node_options options = {}, int tags = 16) : options_(options) {
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back({std::make_unique<endpoint>(rank, count, tags), {}, false});
    }
    for (int rank = 0; rank < count; ++rank) open(rank, 0);
  }

  node& open(int rank, int scope, std::uint64_t opening = 0) {
    node_options options = options_;
    options.rank = rank;
    options.ranks = size();
    if (agreed) options.agreed = agreed(rank);
    scope_state& one = at(rank).scopes[scope];
    one = scope_state();
    one.machine = std::make_unique<node>(
        *at(rank).point, scope_id{static_cast<std::uint64_t>(scope), opening}, options);
    return *one.machine;
  }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  rank_state& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  scope_state& in(int rank, int scope = 0) { return at(rank).scopes.at(scope); }
  node& of(int rank, int scope = 0) { return *in(rank, scope).machine; }

  // ---- names ----
  task_name name(int rank, const std::string& text, int scope = 0) {
    task_name one;
    const std::string family = text.substr(0, 1);
    family_facts facts{family, placement ? placement(rank, family) : "by number", "f", "number"};
    one.family = of(rank, scope).family(facts);
    one.count = 1;
    one.indices[0] = std::stoll(text.substr(1));
    one.what.low =
        std::hash<std::string>{}(text) * 0x9e3779b97f4a7c15U + static_cast<unsigned>(scope);
    one.what.high = static_cast<std::uint32_t>(one.what.low >> 11U);
    one.what.home = home ? home(rank, text) : static_cast<int>(one.indices[0] % 10 % size());
    return one;
  }

  // ---- programs ----
  content_ptr spawn(int rank, const std::string& task, const std::vector<used>& uses = {},
                    std::uint32_t function = 1, std::int64_t argument = 0, std::uint32_t line = 10,
                    int scope = 0, bool travels = true) {
    std::vector<task_name> names;
    for (const used& one : uses) names.push_back(name(rank, one.task, scope));
    std::vector<dependency> dependencies;
    for (std::size_t i = 0; i < uses.size(); ++i) dependencies.push_back({&names[i], uses[i].use});
    std::vector<std::byte> bytes;
    if (argument != 0) {
      bytes.resize(8);
      std::memcpy(bytes.data(), &argument, 8);
    }
    const definition_view what{function, 7, bytes, dependencies, travels};
    return of(rank, scope).spawn(name(rank, task, scope), what, {"folder/test.cpp", line}).refused;
  }
  content_ptr put(int rank, const std::string& task, std::int64_t value, std::size_t bytes = 8,
                  int scope = 0) {
    return of(rank, scope)
        .put(name(rank, task, scope), make(value, bytes), {"folder/put.cpp", 5})
        .refused;
  }
  std::shared_ptr<awaited> await(int rank, const std::string& task, bool takes = false,
                                 producer who = 0, int scope = 0, await_number* number = nullptr) {
    auto one = std::make_shared<awaited>();
    const bool other = in(rank, scope).resting && who == 0;
    if (other) who = of(rank, scope).fork();
    await_start start =
        of(rank, scope).await(who, name(rank, task, scope), takes, {"folder/await.cpp", 20});
    if (start.ended) {
      one->what = std::move(start.ended);
      one->may_move = start.may_move;
      if (other) of(rank, scope).end(who);
    } else {
      if (other) in(rank, scope).helpers[start.number] = who;
      in(rank, scope).awaits[start.number] = one;
      if (number != nullptr) *number = start.number;
    }
    return one;
  }
  void all_end(window_end how, int scope = 0) {
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).dead || in(rank, scope).resting) continue;
      end(rank, how, scope);
    }
    run();
  }

  void end(int rank, window_end how, int scope = 0) {
    in(rank, scope).resting = true;
    of(rank, scope).end_window(0, how);
  }
  /// If some program of the scope awaits something, the others have nothing more to do.
  bool let_others_rest(int scope) {
    bool waits = false;
    bool changed = false;
    for (const rank_state& one : ranks_) {
      const auto found = one.scopes.find(scope);
      waits |= found != one.scopes.end() && !found->second.awaits.empty();
    }
    for (int rank = 0; waits && rank < size(); ++rank) {
      const auto found = at(rank).scopes.find(scope);
      if (found == at(rank).scopes.end() || at(rank).dead) continue;
      if (!found->second.awaits.empty() || found->second.resting) continue;
      end(rank, rest, scope);
      changed = true;
    }
    return changed;
  }

  // ---- the network ----
  /// Until nothing moves.
  void run() {
    do {
      while (step()) {
      }
    } while (others_rest && let_others_rest(0));
  }
  /// For what does not come to rest: the wave goes round while a transfer is under way.
  void run_for(int steps) {
    if (others_rest) static_cast<void>(let_others_rest(0));
    while (steps-- > 0 && step()) {
    }
  }
  bool step() {
    bool moved = false;
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).dead) continue;
      for (auto& [number, one] : at(rank).scopes) moved |= run_scope(rank, one);
      for (int to = 0; to < size(); ++to) moved |= pass_packet(rank, to);
    }
    if (!transfers.empty() && !hold_transfers) {  // the wave may go round until it is complete
      moved = true;
      const transfer one = transfers.front();
      transfers.pop_front();
      if (!at(one.from).dead) at(one.from).point->sent_value(one.to, one.tag);
      if (!at(one.to).dead) at(one.to).point->transferred(one.from, one.tag, one.bytes);
    }
    return moved;
  }
  bool pass_packet(int from, int to) {
    std::vector<std::byte> packet;
    if (!at(from).point->take_message(to, packet)) return false;
    ++packets;
    bytes_sent += packet.size();
    if (on_packet) on_packet(from, to, packet);
    if (!at(to).dead) receive(from, to, packet);
    return true;
  }
  /// As the runtime does it, where ranks may lie: who has sent what is no message is lost.
  void receive(int from, int to, std::span<const std::byte> packet) {
    try {
      at(to).point->receive(from, packet);
    } catch (const std::system_error& bad) {
      if (!ranks_may_lie) throw;
      at(to).point->lost(from, bad.what());
    }
  }
  bool run_scope(int rank, scope_state& one) {
    bool moved = act(rank, one);
    if (hold_tasks) return moved;
    while (auto task = one.machine->start_next()) {
      moved = true;
      begin(one, *task);
      act(rank, one);
    }
    return moved;
  }
  void begin(scope_state& one, const running_task& task) {
    std::int64_t sum = task.function + number_in(task.arguments);
    for (std::size_t i = 0; i < task.inputs.size(); ++i) {
      if (task.uses[i] == use_kind::after) continue;
      sum += number_in(task.inputs[i].what);
      if (task.inputs[i].may_move)
        one.moved.push_back(std::to_string(number_in(task.inputs[i].what)));
    }
    const failure facts = one.machine->failure_of(task.index, "no luck");
    one.ran.push_back(facts.task);
    if (body) body(facts.task);
    if (task.function == throws) {
      one.machine->ended(task.index, content_ptr(new failed_content(facts)));
    } else {
      one.machine->ended(
          task.index, make(sum, task.function == makes_large ? 20'000 : 8, task.function != stays));
    }
  }
  bool act(int rank, scope_state& one) {
    bool moved = false;
    while (!one.machine->actions().empty()) {
      moved = true;
      std::vector<action> all;
      for (action& each : one.machine->actions()) all.push_back(std::move(each));
      one.machine->clear_actions();
      for (action& each : all) {
        switch (each.kind) {
          case action_kind::resume: {
            const auto found = one.awaits.find(each.number);
            found->second->what = std::move(each.what);
            found->second->may_move = each.may_move;
            one.awaits.erase(found);
            if (const auto helper = one.helpers.find(each.number); helper != one.helpers.end()) {
              one.machine->end(helper->second);
            }
            break;
          }
          case action_kind::post_receive:
            ++receives;
            posted.insert({rank, each.rank, each.tag});
            break;
          case action_kind::send_value: {
            const auto bytes = each.what->bytes();
            transfers.push_back({rank, each.rank, each.tag, {bytes.begin(), bytes.end()}});
            most_transfers = std::max(most_transfers, transfers.size());
            break;
          }
          case action_kind::window_ended:
            one.ends.push_back(one.machine->report());
            one.resting = false;
            break;
          case action_kind::cancelled:
            one.cancelled = true;
            break;
          case action_kind::warn:
            one.warnings.push_back(each.text);
            break;
        }
      }
    }
    return moved;
  }
  void kill(int rank) { at(rank).dead = true; }
  void tell_lost(int rank, int dead) { at(rank).point->lost(dead); }

  struct transfer {
    int from, to, tag;
    std::vector<std::byte> bytes;
  };
  std::deque<transfer> transfers;
  std::set<std::tuple<int, int, int>> posted;
  std::size_t packets = 0, bytes_sent = 0, receives = 0, most_transfers = 0;
  bool others_rest = true;
  window_end rest = window_end::fence;
  bool hold_tasks = false, hold_transfers = false, ranks_may_lie = false;
  std::function<void(int from, int to, std::span<const std::byte> packet)> on_packet;
  std::function<std::string(int rank, const std::string& family)> placement;
  std::function<int(int rank, const std::string& task)> home;
  std::function<std::string(int rank)> agreed;
  std::function<void(const std::string& task)> body;

 private:
  node_options options_;
  std::vector<rank_state> ranks_;
};

}  // namespace graph_test
