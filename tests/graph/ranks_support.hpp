// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Runs the program of a scope on all ranks of a test.

#include <cohort/graph.hpp>

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace graph_test {

namespace graph = cohort::graph;
using cohort::errc;
using cohort::graph::after;
using cohort::graph::take;
using task = asio::awaitable<void>;

/// Opens one scope over all ranks, with these options.
template <class... Parameters>
void in_scope(const graph::tasks_options& options, task (*program)(graph::scope&, Parameters...),
              std::remove_cvref_t<Parameters>... arguments) {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world, options);
    auto running = all.run("test", program, arguments...);
    co_await std::move(running);
  });
}
template <class... Parameters>
void in_scope(task (*program)(graph::scope&, Parameters...),
              std::remove_cvref_t<Parameters>... arguments) {
  in_scope<Parameters...>({}, program, arguments...);
}

/// The error that `run` of such a scope ends with.
template <class... Parameters>
std::optional<graph::error> error_of_scope(const graph::tasks_options& options,
                                           task (*program)(graph::scope&, Parameters...),
                                           std::remove_cvref_t<Parameters>... arguments) {
  std::optional<graph::error> found;
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world, options);
    auto running = all.run("test", program, arguments...);
    try {
      co_await std::move(running);
    } catch (const graph::error& why) {
      found = why;
    }
  });
  return found;
}

/// The error that an await ends with.
template <class T>
asio::awaitable<std::optional<graph::error>> error_of(asio::awaitable<T> work) {
  try {
    co_await std::move(work);
  } catch (const graph::error& why) {
    co_return why;
  }
  co_return std::nullopt;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Numbers that look random, the same everywhere.
class numbers {
 public:
  explicit numbers(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t one = state_ += 0x9e3779b97f4a7c15U;
    one = (one ^ (one >> 30U)) * 0xbf58476d1ce4e5b9U;
    one = (one ^ (one >> 27U)) * 0x94d049bb133111ebU;
    return one ^ (one >> 31U);
  }
  std::uint64_t below(std::uint64_t most) noexcept { return next() % most; }
  bool one_in(std::uint64_t so_many) noexcept { return below(so_many) == 0; }
  template <class Container>
  void shuffle(Container& all) {
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace graph_test
