// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of groups that are captured share.

#include "support.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace cohort_test {

/// A group of two packed tensors and a large one, all on one stream.
struct tensors_of_group {
  device::stream on;
  device::vector<float> a;
  device::vector<float> b;
  device::vector<float> large;
  device::pinned_vector<float> next;
};

inline asio::awaitable<tensors_of_group> make_tensors(std::size_t size_of_b = 1000) {
  device::stream on;
  auto a = co_await filled(on, 10, 1.0F);
  auto b = co_await filled(on, size_of_b, 1.0F);
  auto large = co_await filled(on, 100000, 1.0F);
  device::pinned_vector<float> next(100000, on);
  co_return tensors_of_group{on, std::move(a), std::move(b), std::move(large), std::move(next)};
}

[[nodiscard]] inline cohort::bundle bundle_of(tensors_of_group& all) {
  cohort::bundle made("step");
  made.add("a", all.a).add("b", all.b).add("large", all.large);
  return made;
}

/// Queues new inputs; what was there before must be over.
inline void give(tensors_of_group& all, float value) {
  std::fill(all.next.begin(), all.next.end(), value);
  for (auto* const each : {&all.a, &all.b, &all.large}) {
    device::copy(all.on, std::span(all.next).first(each->size()), *each);
  }
}

/// All tensors hold it everywhere.
inline asio::awaitable<void> expect(const tensors_of_group& all, float value) {
  for (const auto* const each : {&all.a, &all.b, &all.large}) {
    const auto seen = co_await now_in(*each);
    const bool same = std::all_of(seen.begin(), seen.end(), [&](float x) { return x == value; });
    INFO("elements: " << seen.size() << ", the first: " << seen.front() << ", not " << value);
    CHECK(same);
  }
}

/// A persistent group of such tensors, and a graph of it.
struct captured_tensors {
  tensors_of_group all;
  cohort::persistent_group group;
  cohort::captured_group captured;
};

template <class Op>
asio::awaitable<captured_tensors> make_captured(cohort::coordinator coord, Op reduction) {
  auto all = co_await make_tensors();
  auto group = co_await coord.make_persistent(bundle_of(all), reduction);
  auto captured = co_await group.capture();
  co_return captured_tensors{std::move(all), std::move(group), std::move(captured)};
}

}  // namespace cohort_test
