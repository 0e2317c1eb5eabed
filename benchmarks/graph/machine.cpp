// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <cohort/graph/machine/endpoint.hpp>
#include <cohort/graph/machine/node.hpp>
#include <cohort/graph/runtime/naming.hpp>

#include <array>
#include <span>

namespace with_machine {
namespace {

namespace machine = cohort::graph::machine;
namespace naming = cohort::graph::runtime;

class number final : public machine::content {
 public:
  explicit number(std::uint64_t one) : value(one) {}
  [[nodiscard]] std::span<const std::byte> bytes() override {
    return std::as_bytes(std::span(&value, 1));
  }
  std::uint64_t value;
};

/// A graph on the machine of one rank, as the runtime would drive it without coroutines.
class program {
 public:
  explicit program(const shape& what)
      : what_(what),
        ranks_(0, 1),
        node_(ranks_, id, machine::node_options{}),
        at_(family("at")),
        zero_(family("zero")) {}

  void put_zero() {
    if (what_.of == pattern::independent) return;
    node_.put(name(zero_), machine::content_ptr(new number(0)), {});
  }

  void spawn_all() {
    if (what_.of != pattern::wavefront) {
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(what_.tasks); ++i) spawn_in_row(i);
      return;
    }
    const auto side = static_cast<std::int64_t>(what_.side);
    for (std::int64_t i = 0; i < side; ++i) {
      for (std::int64_t j = 0; j < side; ++j) {
        const std::array reads{i > 0 ? name(at_, i - 1, j) : name(zero_),
                               j > 0 ? name(at_, i, j - 1) : name(zero_)};
        spawn(name(at_, i, j), reads, machine::use_kind::plain);
      }
    }
  }

  /// Runs all that is ready, and returns what the last task has made.
  std::uint64_t run() {
    while (auto task = node_.start_next()) {
      std::uint64_t sum = 1;
      for (const machine::task_input& one : task->inputs) sum += value_of(*one.what);
      node_.ended(task->index, machine::content_ptr(new number(sum)));
    }
    const auto end = static_cast<std::int64_t>(what_.tasks) - 1;
    const auto side = static_cast<std::int64_t>(what_.side) - 1;
    const auto last = what_.of == pattern::wavefront ? name(at_, side, side) : name(at_, end);
    const auto begun = node_.await(0, last, false, {});
    return begun.ended ? value_of(*begun.ended) : 0;
  }

  void end_window(machine::window_end how) {
    node_.end_window(0, how);
    bool ended = false;
    for (const auto& one : node_.actions()) {
      ended = ended || one.kind == machine::action_kind::window_ended;
    }
    node_.clear_actions();
    if (!ended || node_.report().failed != 0) throw std::runtime_error("machine: the window");
  }

 private:
  struct family_here {
    std::uint32_t number;
    machine::digest128 seed;
  };
  static constexpr machine::scope_id id{1, 1};

  family_here family(const char* text) {
    return {node_.family({text, "on(0)", "add", "number"}), naming::seed_of(id, text)};
  }
  template <class... Indices>
  static machine::task_name name(const family_here& of, Indices... indices) {
    machine::task_name made;
    made.indices = {indices...};
    made.what = naming::key_of(of.seed, naming::hash_of<sizeof...(Indices)>(made.indices), 0);
    made.family = of.number;
    made.count = sizeof...(Indices);
    return made;
  }
  static std::uint64_t value_of(const machine::content& one) {
    return static_cast<const number&>(one).value;
  }

  void spawn_in_row(std::int64_t i) {
    const machine::task_name self = name(at_, i);
    if (what_.of == pattern::independent) return spawn(self, {}, machine::use_kind::plain);
    const std::array reads{i > 0 ? name(at_, i - 1) : name(zero_)};
    spawn(self, reads,
          what_.of == pattern::chain ? machine::use_kind::plain : machine::use_kind::take);
  }
  void spawn(const machine::task_name& self, std::span<const machine::task_name> reads,
             machine::use_kind use) {
    std::array<machine::dependency, 2> all;
    for (std::size_t i = 0; i < reads.size(); ++i) all[i] = {&reads[i], use};
    machine::definition_view what;
    what.dependencies = std::span(all).first(reads.size());
    node_.spawn(self, what, {});
  }

  shape what_;
  machine::endpoint ranks_;
  machine::node node_;
  family_here at_;
  family_here zero_;
};

}  // namespace

cost run(const shape& what) {
  const auto each = static_cast<double>(what.tasks);
  cost took;
  double start = processor_time();
  program graph(what);
  graph.put_zero();
  graph.spawn_all();
  took.build = (processor_time() - start) / each;
  start = processor_time();
  what.check(graph.run(), "the machine");
  graph.end_window(machine::window_end::fence);
  took.run = (processor_time() - start) / each;
  graph.put_zero();
  graph.spawn_all();
  for (int i = 0; i < 2; ++i) {  // the first of the new graph, the second of its repetition
    start = processor_time();
    if (i > 0) graph.put_zero();
    what.check(graph.run(), "the machine, again");
    graph.end_window(machine::window_end::again);
    took.again = (processor_time() - start) / each;
  }
  graph.put_zero();
  graph.run();
  graph.end_window(machine::window_end::close);
  return took;
}

}  // namespace with_machine
