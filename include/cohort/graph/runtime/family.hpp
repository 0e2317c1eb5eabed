// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Families, and tasks by their names, of whatever type.

#include <cohort/core/error.hpp>
#include <cohort/graph/placement.hpp>
#include <cohort/graph/runtime/await.hpp>
#include <cohort/graph/runtime/code.hpp>
#include <cohort/graph/runtime/naming.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/value.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cohort::graph::runtime {

/// A family as its handles have it.
struct family_record {
  family_record(open_scope& of, machine::producer by, std::string_view name, const placement& at,
                const machine::family_facts& facts)
      : scope(&of), opening(of.opening()), who(by), seed(seed_of(of.id(), name)), where(at) {
    at.check(of.ranks());
    if (opening == 0) throw cohort::error(errc::closed, "graph: the scope has ended");
    number = of.family(facts);
  }
  open_scope* scope;
  std::uint64_t opening;
  machine::producer who;
  std::uint32_t number = 0;
  machine::digest128 seed;
  placement where;
};

template <class T, auto... F>
[[nodiscard]] machine::family_facts facts_of(std::string_view name, const placement& where) {
  machine::family_facts facts;
  facts.name = name;
  facts.placement = where.text();
  if constexpr (sizeof...(F) != 0) facts.function = (registered_code<F>::name(), ...);
  facts.result = type_name<T>();
  return facts;
}

template <class T>
[[nodiscard]] task_hash hash_of_source(machine::content& value) {
  return source_hash<T>(value_in<T>(value));
}

template <class T>
[[nodiscard]] constexpr source_hasher hasher_of() noexcept {
  if constexpr (has_wire_format<T>()) return &hash_of_source<T>;
  return nullptr;
}

template <auto... F>
[[nodiscard]] std::uint32_t number_of() {
  std::uint32_t number = 0;
  ((number = static_cast<std::uint32_t>(registered_code<F>::index())), ...);
  return number;
}

/// A task by its name, of whatever type: the base of `graph::task`.
class task_handle {
 public:
  task_handle() noexcept {}
  /// The indices come in registers: to load two at once that have just been stored one by one takes
  /// longer than all the rest.
  template <std::same_as<std::int64_t>... Indices>
  task_handle(const family_record& of, const std::source_location& site, Indices... all)
      : scope_(of.scope), who_(of.who), site_(site) {
    constexpr std::size_t count = sizeof...(Indices);
    const std::array<std::int64_t, machine::most_indices> indices{all...};
    name_.indices = indices;
    const hashed_indices hashed = hash_of<count>(indices);
    const graph::indices used(name_.indices.data(), count);
    name_.what = key_of(of.seed, hashed, of.where.home(used, hashed.of_all(), of.scope->ranks()));
    name_.family = of.number;
    name_.count = count;
    if (of.opening == of.scope->opening()) window_ = of.scope->window();
  }

  /// The rank where it runs, and where its value stays.
  [[nodiscard]] int home() const noexcept { return name_.what.home; }
  /// Whether that is this rank.
  [[nodiscard]] bool here() const noexcept { return scope_ != nullptr && home() == scope_->rank(); }
  /// "factor(3)"
  [[nodiscard]] std::string name() const {
    return is_stale() ? std::string("a task of an earlier window") : scope_->text_of(name_);
  }

  /// What it computes, as 256 bits: see task_hash. In a scope that hashes its tasks
  /// (scope_options::hash_tasks), on any rank that knows the definition of the task and of all that
  /// is above it: because it has spawned or put them, or has their values. *Throws* cohort::error
  /// where that is not so: not_supported, not_local, cycle. *Cost*: about 1 microsecond for it and
  /// for each task above it that has not run here.
  [[nodiscard]] task_hash hash() const {
    if (scope_ == nullptr || is_stale()) {
      throw cohort::error(errc::stale_name, "hash: a task of an earlier window or scope");
    }
    return scope_->hash_of(name_);
  }

  [[nodiscard]] open_scope* scope() const noexcept { return scope_; }
  [[nodiscard]] std::uint64_t window() const noexcept { return window_; }
  [[nodiscard]] bool is_stale() const noexcept {
    return scope_ == nullptr || window_ == 0 || window_ != scope_->window();
  }
  [[nodiscard]] const machine::task_name& key() const noexcept { return name_; }
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }
  void refused(machine::content_ptr why) noexcept { refused_ = std::move(why); }

  template <class T>
  [[nodiscard]] value_body<T> body(bool takes) const {
    return value_body<T>{{name_, window_, who_, takes, refused_, site_}};
  }

 protected:
  void put_content(machine::content_ptr value, source_hasher hasher) const {
    if (scope_ == nullptr || is_stale()) {
      throw cohort::error(errc::stale_name, "put: a task of an earlier window or scope");
    }
    scope_->put(name_, std::move(value), hasher, site_);
  }

 private:
  open_scope* scope_ = nullptr;
  std::uint64_t window_ = 0;
  machine::producer who_ = 0;
  std::source_location site_;
  machine::task_name name_;
  machine::content_ptr refused_;
};

}  // namespace cohort::graph::runtime
