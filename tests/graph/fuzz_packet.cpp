// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Fuzz target of the packets between ranks: bytes are given to a rank in some stage of a job as a
// packet of one of the others. What decodes must encode to the same; who sends what is no packet is
// lost; and whatever a packet has done, a rank that then hears that all others are lost ends each
// of its awaits once, and closes. Built with clang; libFuzzer's options are the program's:
//
//   graph_fuzz_packet -max_total_time=600 tests/graph/corpus
//
// The first byte says whose packet it is, and in which stage of the job it comes. With --corpus
// FOLDER it writes packets of a real job there, to begin with.

#include "graph/fake_ranks.hpp"
#include "graph/read_packet.hpp"
#include "support/fuzz_corpus.hpp"

#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/message.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace graph_test;
namespace wire = cohort::wire;
using bytes = std::vector<std::byte>;

constexpr int ranks = 4;
constexpr int tags = 2;
constexpr int stages = 9;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// Who gets a packet, from whom, and when.
struct setting {
  int to, from, stage;

  explicit setting(std::uint8_t byte) : to(byte % 2), stage((byte / 8) % stages) {
    const int other = (byte / 2) % (ranks - 1);
    from = other < to ? other : other + 1;
  }
  setting(int to_rank, int from_rank, int at) : to(to_rank), from(from_rank), stage(at) {}
  [[nodiscard]] int byte() const { return to + 2 * (from < to ? from : from - 1) + 8 * stage; }
};

node_options small() {
  node_options options;
  options.eager = 64;
  options.credit = 100;
  return options;
}

/// Ranks with tasks, values and awaits of all kinds, in a stage of their job.
struct scene {
  explicit scene(int stage) : all(ranks, small(), tags) {
    all.ranks_may_lie = true;
    all.hold_transfers = stage == 2;
    all.hold_tasks = stage == 3;
    spawn_all();
    if (stage == 8) {
      close();
      return;
    }
    await_all();
    static constexpr int steps[stages] = {0, 2, 30, 30, 60, 60, 4, 4, 0};
    all.run_for(steps[stage]);
    if (stage == 4) {
      for (const int rank : {0, 1}) all.of(rank).start_report();
    } else if (stage == 5) {
      all.all_end(window_end::again);
      put_some();
      all.run_for(3);
    } else if (stage == 6) {
      all.of(2).cancel({});
      all.run_for(2);
    } else if (stage == 7) {
      for (int rank = 0; rank < ranks - 1; ++rank) all.tell_lost(rank, ranks - 1);
    }
  }
  void spawn_all() {
    put_some();
    for (int rank = 0; rank < ranks; ++rank) {
      all.spawn(rank, "a1", {plain("p0")});
      all.spawn(rank, "b0", {plain("a1"), take("q1")});
      all.spawn(rank, "c1", {plain("b0"), take("p1")});
      all.spawn(rank, "d3", {plain("q0"), after("c1")});
    }
    all.spawn(2, "e0", {plain("a1")}, makes_large);
    all.spawn(2, "e1", {plain("e0")});
    for (const int rank : {2, 3}) all.spawn(rank, "f1", {}, 1, rank, 17);  // a divergence
    all.spawn(3, "g0", {plain("y1")}, throws);
  }
  void put_some() {
    all.put(0, "p0", 5);
    all.put(1, "p1", 6, 200);
    all.put(1, "q1", 7);
    all.put(0, "q0", 8, 200);
  }
  void await_all() {
    const auto await = [&](int rank, const char* task, bool takes = false) {
      awaits.emplace_back(rank, all.await(rank, task, takes));
    };
    await(0, "e1");
    await(0, "c1", true);
    await(0, "z1");  // nobody spawns it
    await(1, "e0", true);
    await(1, "z0");
    await(2, "d3");
    await(3, "e0");
    await(3, "f1");
  }
  void close() { all.all_end(window_end::close); }

  /// All others are lost.
  void finish(int rank) {
    all.hold_tasks = all.hold_transfers = false;
    if (!all.of(rank).closed()) static_cast<void>(all.of(rank).take_report());
    for (int other = 0; other < ranks; ++other) {
      if (other != rank) all.tell_lost(rank, other);
    }
    for (auto& [number, one] : all.at(rank).scopes) {
      for (int i = 0; i < 2 && !one.machine->closed(); ++i) {
        all.run_for(2);
        if (!one.machine->closed() && !one.resting) all.end(rank, window_end::close, number);
        all.run_for(2);
      }
      require(one.machine->closed(), "a rank without others does not close");
    }
    for (const auto& [where, one] : awaits) {
      require(where != rank || one->ended(), "an await has not ended");
    }
  }

  fake_ranks all;
  std::vector<std::pair<int, std::shared_ptr<awaited>>> awaits;
};

template <class Message>
void check_settles(std::span<const std::byte> body) {
  Message once;
  try {
    once = read_message<Message>(body, ranks);
  } catch (const std::system_error&) {
    return;
  }
  const bytes text = wire::encode(once);
  wire::reader in(text);
  const auto twice = in.get<Message>();
  require(in.ok() && in.left() == 0 && wire::encode(twice) == text,
          "decoding and encoding do not settle");
}

void check_settles(message_kind kind, std::span<const std::byte> body) {
  switch (kind) {
    case message_kind::digest:
      return check_settles<digest_message>(body);
    case message_kind::diff:
      return;
    case message_kind::list:
      return check_settles<list_message>(body);
    case message_kind::want:
      return check_settles<want_message>(body);
    case message_kind::val:
      return check_settles<value_message>(body);
    case message_kind::offer:
      return check_settles<offer_message>(body);
    case message_kind::grant:
      return check_settles<grant_message>(body);
    case message_kind::credit:
      return check_settles<credit_message>(body);
    case message_kind::release:
      return check_settles<release_message>(body);
    case message_kind::taken:
      return check_settles<taken_message>(body);
    case message_kind::cancel:
      return check_settles<cancel_message>(body);
    case message_kind::up:
      return check_settles<contribution>(body);
    case message_kind::down:
      return check_settles<verdict>(body);
    case message_kind::ask:
      return check_settles<ask_message>(body);
    case message_kind::tell:
      return check_settles<tell_message>(body);
  }
}

bool is_packet(std::span<const std::byte> packet) {
  try {
    read_packet(packet, [](const message_view& one) { check_settles(one.kind, one.body); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void write_corpus(const std::string& folder) {
  cohort_test::corpus_writer files(folder + "/packet");
  for (int stage = 0; stage < stages; ++stage) {
    scene one(stage);
    one.all.on_packet = [&](int from, int to, std::span<const std::byte> packet) {
      if (to < 2) files({setting(to, from, stage).byte()}, packet);
    };
    one.all.hold_tasks = one.all.hold_transfers = false;
    one.all.run_for(60);
    if (stage != 7) one.close();
    one.all.open(2, 1);
    one.all.in(2, 1).machine->cancel({});
    one.all.run_for(2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return cohort_test::write_corpus_if_asked(*argc, *argv, write_corpus);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const setting where(data[0]);
  const std::span<const std::byte> packet(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const bool whole = is_packet(packet);
  scene one(where.stage);
  for (int twice = 0; twice < 2; ++twice) {
    one.all.receive(where.from, where.to, packet);
    require(whole || one.all.at(where.to).point->is_lost(where.from), "its sender is not lost");
    one.all.hold_transfers = true;
    one.all.run_for(2);
    for (const auto& each : one.all.transfers) {
      require(each.tag >= 0 && each.tag < tags, "a value is sent with a tag that there is not");
    }
    one.all.hold_transfers = where.stage == 2;
    one.all.run_for(2);
  }
  one.all.open(where.to, 1);  // what was sent to it has waited
  one.finish(where.to);
  return 0;
}
