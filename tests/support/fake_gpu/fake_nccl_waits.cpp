// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Who waits for whom: mismatched calls inside a communicator, and cycles over communicators.
//
// A collective has its device to itself, so a communicator that waits for a rank waits for whatever
// has the device of that rank. Each process writes such waits of its devices into a table that all
// processes of the job share, and follows them from its own device. A cycle counts only if all who
// are on it have looked again since it was seen first and found that they still wait for the same:
// then all waits were there at the same moment, and none of them can end.
#include "support/fake_gpu/internal.hpp"
#include "support/fake_gpu/nccl_internal.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace fake_nccl {
namespace {

using fake_gpu::internal::occupies;

/// A device: its process and its number there, and never 0.
using device_id = std::uint64_t;

device_id id_of(std::int32_t pid, std::int32_t device) {
  return (static_cast<std::uint64_t>(pid) << 16) | static_cast<std::uint64_t>(device + 1);
}

constexpr std::size_t rows = 256;

struct row {
  std::atomic<device_id> owner;
  std::atomic<std::uint64_t> version;  // odd while it is written
  std::atomic<std::uint64_t> looks;    // how often the owner has found that the rest is still true
  std::atomic<std::uint64_t> waits_for[most_ranks];
  std::atomic<std::uint64_t> name[6];  // of the communicator
};

struct table {
  row all[rows];
};

/// A row as it was read.
struct wait_seen {
  device_id owner = 0;
  std::uint64_t version = 0;
  std::uint64_t looks = 0;
  std::vector<device_id> waits_for;
  std::string name;
};

struct waits {
  std::mutex mutex;
  std::unique_ptr<shared_segment> mapping;
  std::map<int, row*> mine;  // by device
  std::map<int, std::vector<wait_seen>> suspected;
  std::vector<std::string> cycles;
};

waits& the_waits() {
  static waits& instance = *new waits;
  return instance;
}

/// Common to the processes of a job on this node.
std::string name_of_job() {
  const char* job = std::getenv("PMIX_NAMESPACE");
  std::string made = std::to_string(getuid()) + "." +
                     (job != nullptr ? std::string(job) : std::to_string(getppid()));
  std::replace(made.begin(), made.end(), '/', '_');
  return "/cohort_fake_nccl.waits." + made;
}

table* open_table() {
  waits& all = the_waits();
  if (!all.mapping) {
    all.mapping = std::make_unique<shared_segment>(name_of_job(), sizeof(table));
  }
  return static_cast<table*>(all.mapping->get());
}

row* row_of(int device) {
  waits& all = the_waits();
  if (const auto found = all.mine.find(device); found != all.mine.end()) return found->second;
  table* const shared = open_table();
  if (shared == nullptr) return nullptr;
  const device_id id = id_of(getpid(), device);
  for (row& one : shared->all) {
    device_id owner = one.owner.load();
    const auto pid = static_cast<pid_t>(owner >> 16);
    const bool free = owner == 0 || (kill(pid, 0) != 0 && errno == ESRCH);
    if (!free || !one.owner.compare_exchange_strong(owner, id)) continue;
    for (auto& each : one.waits_for) each.store(0);
    all.mine[device] = &one;
    return &one;
  }
  return nullptr;
}

bool read_row(device_id owner, wait_seen& seen) {
  table* const shared = open_table();
  for (row& one : shared->all) {
    if (one.owner.load() != owner) continue;
    seen.owner = owner;
    seen.version = one.version.load();
    if (seen.version % 2 != 0) return false;
    seen.looks = one.looks.load();
    for (const auto& each : one.waits_for) {
      if (const device_id other = each.load(); other != 0) seen.waits_for.push_back(other);
    }
    char name[sizeof one.name];
    for (std::size_t i = 0; i < std::size(one.name); ++i) {
      const std::uint64_t part = one.name[i].load();
      std::memcpy(name + i * sizeof part, &part, sizeof part);
    }
    name[sizeof name - 1] = 0;
    seen.name = name;
    return one.version.load() == seen.version && one.owner.load() == owner &&
           !seen.waits_for.empty();
  }
  return false;
}

/// Follows the waits until they come back to `target`.
bool follow(device_id from, device_id target, std::vector<wait_seen>& path) {
  for (const wait_seen& one : path) {
    if (one.owner == from) return false;  // a cycle of others, who will find it
  }
  wait_seen here;
  if (!read_row(from, here)) return false;
  path.push_back(here);
  for (const device_id next : here.waits_for) {
    if (next == target || follow(next, target, path)) return true;
  }
  path.pop_back();
  return false;
}

/// The same waits, looked at again by all since: of two looks that are counted, the second has
/// begun after the first was.
bool confirmed(const std::vector<wait_seen>& before, const std::vector<wait_seen>& now) {
  return std::equal(before.begin(), before.end(), now.begin(), now.end(),
                    [](const wait_seen& one, const wait_seen& two) {
                      return one.owner == two.owner && one.version == two.version &&
                             one.looks + 1 < two.looks;
                    });
}

bool same(const std::vector<wait_seen>& before, const std::vector<wait_seen>& now) {
  return std::equal(before.begin(), before.end(), now.begin(), now.end(),
                    [](const wait_seen& one, const wait_seen& two) {
                      return one.owner == two.owner && one.version == two.version;
                    });
}

void write_row(row& mine, const std::array<device_id, most_ranks>& waits_for,
               const std::string& name) {
  mine.version.fetch_add(1);
  for (int i = 0; i < most_ranks; ++i) mine.waits_for[i].store(waits_for[std::size_t(i)]);
  char text[sizeof mine.name] = {};
  name.copy(text, sizeof text - 1);
  for (std::size_t i = 0; i < std::size(mine.name); ++i) {
    std::uint64_t part = 0;
    std::memcpy(&part, text + i * sizeof part, sizeof part);
    mine.name[i].store(part);
  }
  mine.version.fetch_add(1);
}

}  // namespace

void wait_for_ranks(const communicator& of, std::uint32_t ranks) {
  if (!occupies()) return;
  waits& all = the_waits();
  const std::lock_guard hold(all.mutex);
  row* const mine = row_of(of.device);
  if (mine == nullptr) return;
  std::array<device_id, most_ranks> waits_for = {};
  bool changed = false;
  for (int i = 0; i < of.ranks; ++i) {
    const rank_slot& other = of.shared->ranks[i];
    const bool waits = i != of.rank && (ranks & (1U << i)) != 0;
    waits_for[std::size_t(i)] = waits ? id_of(other.pid, other.device) : 0;
  }
  for (int i = 0; i < most_ranks; ++i) {
    changed |= mine->waits_for[i].load() != waits_for[std::size_t(i)];
  }
  if (changed) write_row(*mine, waits_for, of.name);
  mine->looks.fetch_add(1);

  std::vector<wait_seen> path;
  const device_id self = id_of(getpid(), of.device);
  auto& before = all.suspected[of.device];
  if (!follow(self, self, path)) return before.clear();
  // One communicator alone is no cycle: there the ranks call different things.
  const auto other = [&](const wait_seen& one) { return one.name != path.front().name; };
  if (std::none_of(path.begin(), path.end(), other)) return before.clear();
  if (!same(before, path)) {
    before = path;
    return;
  }
  if (!confirmed(before, path)) return;
  // The same text wherever it is found.
  const auto by_name = [](const wait_seen& one, const wait_seen& two) {
    return one.name < two.name;
  };
  std::rotate(path.begin(), std::min_element(path.begin(), path.end(), by_name), path.end());
  std::string text;
  for (const wait_seen& one : path) text += one.name + " waits for ";
  text += path.front().name;
  if (std::find(all.cycles.begin(), all.cycles.end(), text) == all.cycles.end()) {
    all.cycles.push_back(text);
  }
}

void wait_for_nobody(const communicator& of) {
  waits& all = the_waits();
  const std::lock_guard hold(all.mutex);
  const auto found = all.mine.find(of.device);
  if (found != all.mine.end()) write_row(*found->second, {}, "");
}

std::vector<std::string> cycles_found() {
  const std::lock_guard hold(the_waits().mutex);
  return the_waits().cycles;
}

void forget_waits() {
  waits& all = the_waits();
  const std::lock_guard hold(all.mutex);
  for (const auto& [device, one] : all.mine) {
    write_row(*one, {}, "");
    one->owner.store(0);
  }
  all.mine.clear();
  all.suspected.clear();
  all.cycles.clear();
  if (all.mapping) all.mapping->unlink_if_last();
  all.mapping.reset();
}

finding stuck(const communicator& of) {
  const segment& shared = *of.shared;
  /// Whether what rank a sends to b, or expects of it, has no counterpart.
  const auto message_waits = [&](int a, int b) {
    const auto alone = [](const std::atomic<std::uint64_t>& here,
                          const std::atomic<std::uint64_t>& there,
                          const std::atomic<std::uint64_t>& done) {
      const std::uint64_t so_far = done.load();
      return here.load() > so_far && there.load() <= so_far;
    };
    const rank_slot& one = shared.ranks[a];
    const channel& out = shared.channels[a][b];
    const channel& in = shared.channels[b][a];
    const bool in_kernel =
        one.in_messages.load() != 0 &&
        (alone(out.sends, out.receives, out.done) || alone(in.receives, in.sends, in.done));
    const bool before_launch = (one.launching_messages.load() & (1U << b)) != 0 &&
                               (shared.ranks[b].met.load() & (1U << a)) == 0;
    return in_kernel || before_launch;
  };
  const auto collective_waits = [&](int a, int b) {
    const rank_slot& one = shared.ranks[a];
    const rank_slot& other = shared.ranks[b];
    return (one.wants_collective.load() != 0 && other.step.load() < one.step.load()) ||
           (one.launching_collective.load() != 0 && other.connected.load() == 0);
  };
  for (int i = 0; i < of.ranks; ++i) {
    if (i == of.rank) continue;
    const bool collective = collective_waits(of.rank, i);
    const bool message = message_waits(of.rank, i);
    if (!collective && !message) continue;
    const rank_slot& other = shared.ranks[i];
    const bool finalized = other.finalized.load() != 0;
    const bool theirs_message = message_waits(i, of.rank);
    const bool theirs_collective = message && collective_waits(i, of.rank);
    const bool mismatched = other.mismatched.load() != 0;
    // Both at the same moment: that rank may have come to it, and be at the next thing by now.
    if (!(collective ? collective_waits(of.rank, i) : message_waits(of.rank, i))) continue;
    const std::string mine = "rank " + std::to_string(of.rank) + " of " + of.name + " waits in a " +
                             (collective ? "collective" : "message") + " for rank " +
                             std::to_string(i);
    if (finalized) return {ncclInvalidUsage, "mismatch: " + mine + ", which has finalized"};
    if (theirs_message || theirs_collective) {
      return {ncclInvalidUsage, "mismatch: " + mine + ", which waits in a " +
                                    (theirs_message ? "message" : "collective") + " for rank " +
                                    std::to_string(of.rank)};
    }
    if (mismatched) return {ncclRemoteError, mine + ", which has found a mismatch"};
  }
  return {};
}

}  // namespace fake_nccl
