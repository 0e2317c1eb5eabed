// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Definitions as they are kept: each in one piece of memory with its dependencies, the inputs of
/// its task and its arguments, since these are used together.

#include <cohort/graph/machine/action.hpp>
#include <cohort/graph/machine/arena.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/definition.hpp>
#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <vector>

namespace cohort::graph::machine {

/// A dependency of a task.
struct edge {
  std::uint32_t value = none;  // record
  std::uint32_t owner = none;  // record of the task
  std::uint32_t next = none;   // edge that waits for the same value
  use_kind use = use_kind::plain;
  bool unclaimed = false;
};

/// The head of such a piece. Behind it lie the edges; the inputs, where the task may run here; the
/// kinds of use, and the arguments.
class stored_definition {
 public:
  const char* file = nullptr;  // of the spawn site
  std::uint32_t line = 0;
  std::uint32_t function = 0;
  std::uint32_t result = 0;
  std::uint32_t count = 0;  // of edges
  std::uint32_t argument_bytes = 0;
  bool here = false;  // it has inputs
  bool travels = true;
  bool source = false;
  bool takes = false;  // some of its inputs

  [[nodiscard]] spawn_site site() const noexcept { return {file, line}; }
  void set_site(spawn_site at) noexcept {
    file = at.file;
    line = at.line;
  }
  [[nodiscard]] std::span<edge> edges() noexcept { return {at<edge>(head), count}; }
  [[nodiscard]] std::span<const edge> edges() const noexcept {
    return {at<const edge>(head), count};
  }
  /// Where it is `here`.
  [[nodiscard]] std::span<task_input> inputs() noexcept {
    return {at<task_input>(head + count), count};
  }
  [[nodiscard]] std::span<const use_kind> uses() const noexcept {
    return {at<const use_kind>(behind()), count};
  }
  [[nodiscard]] std::span<const std::byte> arguments() const noexcept {
    return {at<const std::byte>(behind()) + count, argument_bytes};
  }
  /// The task runs no more, or never will. [graph R1]
  void drop_inputs() noexcept {
    if (!here) return;
    for (task_input& each : inputs()) each.what = nullptr;
  }

 private:
  friend class definition_store;
  friend class use_writer;
  static constexpr std::size_t unit = 16;
  static constexpr std::uint32_t head = 2;  // units

  [[nodiscard]] std::uint32_t behind() const noexcept { return head + (here ? 2 : 1) * count; }
  template <class T>
  [[nodiscard]] T* at(std::uint32_t units) const noexcept {
    const void* const begin = reinterpret_cast<const std::byte*>(this) + units * unit;
    return static_cast<T*>(const_cast<void*>(begin));
  }
};

/// Writes the dependencies of a definition, one after the other, with records instead of names.
class use_writer {
 public:
  use_writer(stored_definition& of, std::uint32_t owner) noexcept
      : of_(of),
        owner_(owner),
        edge_(of.edges().data()),
        input_(of.here ? of.inputs().data() : nullptr),
        use_(of.at<std::byte>(of.behind())) {}
  void add(std::uint32_t value, use_kind use) noexcept {
    new (edge_++) edge{value, owner_, none, use, false};
    if (input_ != nullptr) new (input_++) task_input;
    new (use_++) use_kind(use);
    if (use == use_kind::take) of_.takes = true;
  }

 private:
  stored_definition& of_;
  std::uint32_t owner_;
  edge* edge_;
  task_input* input_;
  std::byte* use_;
};

/// All definitions of a window. An edge has a number too.
class definition_store {
 public:
  [[nodiscard]] stored_definition& operator[](std::uint32_t at) noexcept {
    return *static_cast<stored_definition*>(static_cast<void*>(&units_[at]));
  }
  [[nodiscard]] const stored_definition& operator[](std::uint32_t at) const noexcept {
    return *static_cast<const stored_definition*>(static_cast<const void*>(&units_[at]));
  }
  [[nodiscard]] edge& edge_at(std::uint32_t at) noexcept {
    return *static_cast<edge*>(static_cast<void*>(&units_[at]));
  }
  [[nodiscard]] const edge& edge_at(std::uint32_t at) const noexcept {
    return *static_cast<const edge*>(static_cast<const void*>(&units_[at]));
  }
  /// The number of its first edge, which the others follow.
  [[nodiscard]] static std::uint32_t first_edge(std::uint32_t definition) noexcept {
    return definition + stored_definition::head;
  }

  /// One with so many dependencies, which its caller writes; `here`: it may run on this rank.
  [[nodiscard]] std::uint32_t add(const definition_view& what, std::size_t uses, spawn_site site,
                                  bool here) {
    constexpr std::size_t unit = stored_definition::unit;
    const auto count = static_cast<std::uint32_t>(uses);
    const std::size_t behind = (count + what.arguments.size() + unit - 1) / unit;
    const std::uint32_t at = units_.take(stored_definition::head + (here ? 2 : 1) * count +
                                         static_cast<std::uint32_t>(behind));
    stored_definition& one = *new (&units_[at]) stored_definition{
        .file = site.file,
        .line = site.line,
        .function = what.function,
        .result = what.result,
        .count = count,
        .argument_bytes = static_cast<std::uint32_t>(what.arguments.size()),
        .here = here,
        .travels = what.travels};
    if (!what.arguments.empty()) {
      std::memcpy(one.at<std::byte>(one.behind()) + count, what.arguments.data(),
                  what.arguments.size());
    }
    return at;
  }
  /// The one that was added last is not kept.
  void drop(std::uint32_t last) noexcept { units_.give_back(last); }
  /// Requires that all inputs were dropped.
  void clear() noexcept { units_.clear(); }
  [[nodiscard]] std::uint32_t size() const noexcept { return units_.size(); }
  [[nodiscard]] std::size_t capacity() const noexcept { return units_.capacity(); }

 private:
  struct alignas(stored_definition::unit) memory {
    std::byte bytes[stored_definition::unit];
  };
  arena<memory, 16384> units_;
};
static_assert(sizeof(stored_definition) == 32 && sizeof(edge) == 16 && sizeof(task_input) == 16);

}  // namespace cohort::graph::machine
