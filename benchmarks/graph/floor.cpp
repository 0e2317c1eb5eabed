// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What nobody can save who names tasks: integers are hashed to a key of 128 bits, a table that
// grows finds the node of a key, and a queue has what is ready. No values of any type, no errors,
// no ranks.

#include "competitors.hpp"

#include <array>
#include <span>
#include <vector>

namespace floor_program {
namespace {

struct task_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const task_key&, const task_key&) = default;
};

/// Both halves of the product: each bit of it depends on all bits of both factors.
std::uint64_t folded(std::uint64_t one, std::uint64_t other) {
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(one) * other;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

task_key key_of(std::uint64_t family, std::uint64_t i, std::uint64_t j) {
  const std::uint64_t a = i ^ 0xa0761d6478bd642fU;
  const std::uint64_t b = j ^ 0xe7037ed1a0b428dbU;
  return {folded(folded(a, b ^ family), 0x8ebc6af09c88c6e3U),
          folded(folded(a + b, b - family), 0x589965cc75374cc3U)};
}

constexpr std::uint32_t none = 0xffffffff;

using body = std::uint64_t (*)(std::uint64_t);

struct node {
  task_key name;
  body code = nullptr;
  std::uint64_t value = 0;          // first what it has read, then what it has made
  std::uint32_t waits = 0;          // for so many others
  std::uint32_t dependants = none;  // the first edge
  std::uint32_t reads = 0;
  bool done = false;
};

struct edge {
  std::uint32_t to = none;
  std::uint32_t next = none;
};

class graph {
 public:
  void spawn(const task_key& name, body code, std::span<const task_key> reads) {
    const std::uint32_t self = find(name);
    nodes_[self].code = code;
    for (const task_key& one : reads) add_edge(find(one), self);
    nodes_[self].reads = nodes_[self].waits;
    if (nodes_[self].waits == 0) ready_.push_back(self);
  }

  std::uint64_t run() {
    std::uint64_t last = 0;
    while (!ready_.empty()) {
      const std::uint32_t self = ready_.back();
      ready_.pop_back();
      node& one = nodes_[self];
      one.value = last = one.code(one.value);
      one.done = true;
      for (std::uint32_t e = one.dependants; e != none; e = edges_[e].next) {
        node& next = nodes_[edges_[e].to];
        next.value += one.value;
        if (--next.waits == 0) ready_.push_back(edges_[e].to);
      }
    }
    return last;
  }

  /// Makes all nodes wait again, as they did when they had been spawned.
  void rewind() {
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].value = 0;
      nodes_[i].done = false;
      nodes_[i].waits = nodes_[i].reads;
      if (nodes_[i].waits == 0) ready_.push_back(i);
    }
  }

 private:
  /// A part of the key says of most others at once that they are not meant.
  struct slot {
    std::uint32_t part = 0;
    std::uint32_t index = none;
  };

  void add_edge(std::uint32_t from, std::uint32_t to) {
    if (nodes_[from].done) {
      nodes_[to].value += nodes_[from].value;
      return;
    }
    edges_.push_back({to, nodes_[from].dependants});
    nodes_[from].dependants = static_cast<std::uint32_t>(edges_.size() - 1);
    ++nodes_[to].waits;
  }

  std::uint32_t find(const task_key& name) {
    const auto part = static_cast<std::uint32_t>(name.high);
    std::size_t at = name.low & (slots_.size() - 1);
    while (slots_[at].index != none) {
      if (slots_[at].part == part && nodes_[slots_[at].index].name == name) return slots_[at].index;
      at = (at + 1) & (slots_.size() - 1);
    }
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    slots_[at] = {part, index};
    nodes_.push_back({.name = name});
    if (2 * nodes_.size() > slots_.size()) grow();
    return index;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), slot{});
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      std::size_t at = nodes_[i].name.low & (slots_.size() - 1);
      while (slots_[at].index != none) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = {static_cast<std::uint32_t>(nodes_[i].name.high), i};
    }
  }

  std::vector<slot> slots_ = std::vector<slot>(1024);
  std::vector<node> nodes_;
  std::vector<edge> edges_;
  std::vector<std::uint32_t> ready_;
};

std::uint64_t add_one(std::uint64_t read) { return read + 1; }

void spawn_all(graph& tasks, const shape& what) {
  std::array<task_key, 2> reads;
  if (what.of != pattern::wavefront) {
    for (std::uint64_t i = 0; i < what.tasks; ++i) {
      const bool reads_one = what.of != pattern::independent && i > 0;
      if (reads_one) reads[0] = key_of(1, i - 1, 0);
      tasks.spawn(key_of(1, i, 0), add_one, std::span(reads).first(reads_one ? 1 : 0));
    }
    return;
  }
  for (std::uint64_t i = 0; i < what.side; ++i) {
    for (std::uint64_t j = 0; j < what.side; ++j) {
      std::size_t count = 0;
      if (i > 0) reads[count++] = key_of(1, i - 1, j);
      if (j > 0) reads[count++] = key_of(1, i, j - 1);
      tasks.spawn(key_of(1, i, j), add_one, std::span(reads).first(count));
    }
  }
}

}  // namespace

cost run(const shape& what) {
  const auto each = static_cast<double>(what.tasks);
  cost took;
  double start = processor_time();
  {
    graph tasks;
    spawn_all(tasks, what);
    took.build = (processor_time() - start) / each;
    start = processor_time();
    what.check(tasks.run(), "floor");
    took.run = (processor_time() - start) / each;
    start = processor_time();
    tasks.rewind();
    what.check(tasks.run(), "floor, again");
    took.again = (processor_time() - start) / each;
    start = processor_time();
  }
  took.run += (processor_time() - start) / each;
  return took;
}

}  // namespace floor_program
