// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The messages of real ranks, counted as MPI gets them: what a uniform program costs, and what one
// that runs again.
#include <cohort/comm.hpp>
#include <cohort/comm/fragments.hpp>
#include <cohort/graph.hpp>
#include <cohort/graph/machine/message.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/isend.hpp"
#include "graph/ranks_support.hpp"
#include "graph/read_packet.hpp"

namespace {

using namespace graph_test;
using cohort::graph::machine::message_kind;

/// What this rank sends of one `graph::tasks`, while this lives. The windows of a scope without
/// verdicts are its epochs.
class sent_messages {
 public:
  using value_and_rank = std::pair<cohort::graph::machine::key, int>;

  explicit sent_messages(int ranks)
      : ranks_(ranks),
        parts_(static_cast<std::size_t>(ranks),
               cohort::comm::message_assembly(std::numeric_limits<std::size_t>::max())) {
    on_isend = [this](std::span<const std::byte> what, int to, MPI_Comm over) {
      saw(what, to, over);
    };
  }
  sent_messages(const sent_messages&) = delete;
  sent_messages& operator=(const sent_messages&) = delete;
  ~sent_messages() { on_isend = nullptr; }

  [[nodiscard]] int count(message_kind kind, std::uint64_t window, int to) const {
    const auto found = counts_.find({kind, window, to});
    return found == counts_.end() ? 0 : found->second;
  }
  /// Of all kinds but these.
  [[nodiscard]] int others(std::uint64_t window, const std::set<message_kind>& but) const {
    int all = 0;
    for (const auto& [which, times] : counts_) {
      if (std::get<1>(which) == window && !but.contains(std::get<0>(which))) all += times;
    }
    return all;
  }
  /// Values that were sent or offered, each to each rank once.
  [[nodiscard]] int values(std::uint64_t window, int to) const {
    int all = 0;
    for (const auto& [which, times] : values_) {
      if (which.first != window || which.second.second != to) continue;
      CHECK(times == 1);
      ++all;
    }
    return all;
  }
  /// Large ones, which the offers announce.
  [[nodiscard]] int transfers(int to) const {
    const auto found = transfers_.find(to);
    return found == transfers_.end() ? 0 : found->second;
  }

 private:
  // Communicators are made with messages of one byte. No value is sent before its offer, so what
  // goes first after that is a packet.
  void saw(std::span<const std::byte> what, int to, MPI_Comm over) {
    if (what.size() == 1) return;
    if (!packets_) packets_ = over;
    if (over != *packets_) {
      ++transfers_[to];
      return;
    }
    const auto message = parts_[static_cast<std::size_t>(to)].take(what);
    if (!message.whole) return;
    read_packet(message.bytes, [&](const message_view& one) {
      namespace machine = cohort::graph::machine;
      ++counts_[{one.kind, one.epoch, to}];
      if (one.kind == message_kind::val) {
        const auto value = machine::read_message<machine::value_message>(one.body, ranks_);
        ++values_[{one.epoch, {value.value, to}}];
      } else if (one.kind == message_kind::offer) {
        const auto value = machine::read_message<machine::offer_message>(one.body, ranks_);
        ++values_[{one.epoch, {value.value, to}}];
      }
    });
  }

  int ranks_;
  std::vector<cohort::comm::message_assembly> parts_;  // by receiver
  std::optional<MPI_Comm> packets_;
  std::map<std::tuple<message_kind, std::uint64_t, int>, int> counts_;
  std::map<std::pair<std::uint64_t, value_and_rank>, int> values_;
  std::map<int, int> transfers_;
};

/// In each window: values of this rank, and the other ranks that need them.
using needed = std::set<std::pair<std::string, int>>;
int needed_by(const needed& all, int rank) {
  int result = 0;
  for (const auto& one : all) result += one.second == rank ? 1 : 0;
  return result;
}

// ---- a wavefront that all ranks spawn, each in its own order ----
// Port of StarPU insert_task_sent_cache and insert_task_recv_cache, too: several tasks of a rank
// read a value that comes once.

using numbers_of_cell = std::vector<std::int64_t>;  // 50 of them: 400 bytes

numbers_of_cell cell_of(std::int64_t own, std::span<const numbers_of_cell> before) {
  numbers_of_cell all(50, own);
  for (const numbers_of_cell& one : before) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += one[i];
  }
  return all;
}

task counted_wavefront(graph::scope& s, int size, int windows, needed* all) {
  auto cell = s.tasks<&cell_of>("cell", graph::block_cyclic(1, s.size()));
  std::int64_t paths = 1;  // from one corner to the other
  for (int i = 1; i < size; ++i) paths = paths * (size - 1 + i) / i;
  for (int window = 0; window < windows; ++window) {
    std::vector<std::pair<int, int>> order;
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j) order.emplace_back(i, j);
    }
    numbers(static_cast<std::uint64_t>(100 * s.rank() + window)).shuffle(order);
    for (const auto& [i, j] : order) {
      std::vector<graph::task<numbers_of_cell>> before;
      if (i > 0) before.push_back(cell(i - 1, j));
      if (j > 0) before.push_back(cell(i, j - 1));
      cell(i, j).spawn(i + j == 0 ? 1 : 0, before);
      for (const auto& each : before) {
        if (each.here() && !cell(i, j).here()) all->emplace(each.name(), cell(i, j).home());
      }
    }
    const auto last = cell(size - 1, size - 1);
    const numbers_of_cell got = co_await last.get();
    CHECK(got == numbers_of_cell(50, paths));
    for (int rank = 0; rank < s.size(); ++rank) {
      if (last.here() && rank != s.rank()) all->emplace(last.name(), rank);
    }
    const graph::report ended = co_await s.fence();
    CHECK(ended.failed == 0);
  }
}

/// Sources change, and what is made of them; only rank 0 awaits something, at its home.
int point_of(int value) { return 3 * value; }
int sum_of_points(int a, int b) { return a + b; }
std::int64_t sum_of_all(std::span<const int> all) {
  std::int64_t result = 0;
  for (const int one : all) result += one;
  return result;
}

task counted_again(graph::scope& s, int points, int rounds, needed* all) {
  auto input = s.tasks<int>("input");
  auto point = s.tasks<&point_of>("point");
  auto pair = s.tasks<&sum_of_points>("pair", graph::block_cyclic(s.size(), 1));
  auto total = s.tasks<&sum_of_all>("total", graph::on(0));
  std::vector<graph::task<int>> pairs;
  for (int p = 0; p < points; ++p) point(p).spawn(take(input(p)));
  for (int p = 0; p < points; ++p) {
    const auto next = point((p + 1) % points);
    pairs.push_back(pair(p, 0).spawn(point(p), next));
    for (const auto& each : {point(p), next}) {
      if (each.here() && !pairs.back().here()) all->emplace(each.name(), pairs.back().home());
    }
    if (pairs.back().here() && s.rank() != 0) all->emplace(pairs.back().name(), 0);
  }
  total().spawn(pairs);
  for (int round = 0; round < rounds; ++round) {
    std::int64_t expected = 0;
    for (int p = 0; p < points; ++p) {
      if (input(p).here()) input(p).put(p * (round + 1));
      expected += 6 * p * (round + 1);
    }
    if (s.rank() == 0) {
      const std::int64_t got = co_await total().get();
      CHECK(got == expected);
    }
    auto ending = round < rounds - 1 ? s.again() : s.fence();
    const graph::report ended = co_await std::move(ending);
    CHECK(ended.failed == 0);
  }
}

/// What a value needs to get to another rank, and the wave; a rank that is idle first says what it
/// wants.
const std::set<message_kind> of_values{message_kind::want,  message_kind::val, message_kind::offer,
                                       message_kind::grant, message_kind::up,  message_kind::down,
                                       message_kind::credit};

}  // namespace

TEST_CASE("a uniform program sends each value once to each rank, and a digest to each other rank",
          "[graph][ranks]") {
  constexpr int size = 9;
  constexpr int windows = 3;
  for (const bool large : {false, true}) {
    needed all;
    cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
      const sent_messages sent(world.size());
      {
        graph::tasks graphs(world, graph::tasks_options{.eager = large ? 64U : 8192U});
        auto running = graphs.run("uniform", &counted_wavefront, size, windows, &all);
        co_await std::move(running);
      }
      std::set<message_kind> expected = of_values;
      expected.insert(message_kind::digest);
      for (std::uint64_t window = 0; window < windows; ++window) {
        CHECK(sent.others(window, expected) == 0);
      }
      for (int to = 0; to < world.size(); ++to) {
        INFO("rank " << world.rank() << " to " << to << (large ? ", large" : ""));
        const bool other = to != world.rank();
        for (std::uint64_t window = 0; window < windows; ++window) {
          CHECK(sent.count(message_kind::digest, window, to) == (other ? 1 : 0));
          CHECK(sent.values(window, to) == needed_by(all, to));
          CHECK(sent.count(message_kind::offer, window, to) == (large ? needed_by(all, to) : 0));
        }
        CHECK(sent.transfers(to) == (large ? windows * needed_by(all, to) : 0));
      }
    });
  }
}

TEST_CASE("a graph that runs again sends values and what the wave needs, and nothing else",
          "[graph][ranks]") {
  constexpr int rounds = 5;
  needed all;
  cohort_test::on_world_of_mpi([&](cohort::communicator world) -> task {
    const sent_messages sent(world.size());
    {
      graph::tasks graphs(world);
      auto running = graphs.run("again", &counted_again, 30, rounds, &all);
      co_await std::move(running);
    }
    for (std::uint64_t window = 1; window < rounds; ++window) {
      CHECK(sent.others(window, of_values) == 0);
    }
    for (int to = 0; to < world.size(); ++to) {
      INFO("rank " << world.rank() << " to " << to);
      for (std::uint64_t window = 0; window < rounds; ++window) {
        CHECK(sent.values(window, to) == needed_by(all, to));
      }
    }
  });
}
