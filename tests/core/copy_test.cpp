// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include <cohort/core/copy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "support/catch.hpp"

namespace {

constexpr std::size_t page = 4096;

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(i * 7 + i / 251);
  return all;
}

/// The first byte in there that lies so far behind the beginning of a page.
std::byte* behind_page(std::vector<std::byte>& in, std::size_t distance) {
  const auto begin = reinterpret_cast<std::uintptr_t>(in.data());
  return in.data() + (page - begin % page) % page + distance;
}

}  // namespace

TEST_CASE("bytes arrive whole, and nothing beside them changes, wherever the buffers lie") {
  constexpr std::size_t most = 70'000;
  std::vector<std::byte> in(most + 3 * page);
  std::vector<std::byte> out(most + 3 * page);
  const std::vector<std::byte> what = some_bytes(most);
  for (const std::size_t size : {1U, 15U, 63U, 64U, 65U, 2047U, 2048U, 2049U, 4097U, 70'000U}) {
    for (const std::size_t at : {0U, 8U, 100U}) {
      for (std::size_t distance = 0; distance <= 33; ++distance) {
        std::byte* const from = behind_page(in, at);
        std::byte* const to = behind_page(out, at + distance);
        std::copy_n(what.data(), size, from);
        for (const bool in_lines : {false, true}) {
          std::fill_n(to - (distance == 0 && at == 0 ? 0 : 1), size + 2, std::byte{0xee});
#if defined(__x86_64__) && defined(__GLIBC__)
          if (in_lines) {
            cohort::detail::copy_in_lines(to, from, size);
          } else {
            cohort::copy_bytes(to, from, size);
          }
          const bool behind = size >= 2048 && distance >= 1 && distance <= 31;
          if (cohort::detail::is_little_behind(to, from, size) != behind) {
            FAIL("distance " << distance);
          }
          const bool slow = behind && __builtin_cpu_is("amd") != 0;
          if (cohort::detail::memcpy_is_slow(to, from, size) != slow) FAIL("distance " << distance);
#else
          cohort::copy_bytes(to, from, size);
#endif
          if (!std::equal(to, to + size, what.data())) FAIL("size " << size << " at " << distance);
          if (to[size] != std::byte{0xee}) FAIL("behind " << size << " at " << distance);
          if (to != behind_page(out, 0) && to[-1] != std::byte{0xee}) FAIL("before, " << distance);
        }
      }
    }
  }
  cohort::copy_bytes(nullptr, nullptr, 0);
  cohort::copy_elements(static_cast<int*>(nullptr), nullptr, 0);
}

TEST_CASE("bytes are appended behind those that are there, and memory grows by factors") {
  const std::vector<std::byte> what = some_bytes(10'000);
  for (std::size_t before = 0; before < 40; ++before) {
    std::vector<std::byte> all = some_bytes(before);
    const std::vector<std::byte> first = all;
    cohort::append_bytes(all, what);
    cohort::append_bytes(all, {});
    REQUIRE(all.size() == before + what.size());
    CHECK(std::equal(first.begin(), first.end(), all.begin()));
    CHECK(std::equal(what.begin(), what.end(), all.begin() + static_cast<std::ptrdiff_t>(before)));
  }
  std::vector<std::byte> all;
  int grown = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::size_t room = all.capacity();
    cohort::append_bytes(all, std::span(what).first(100));
    if (all.capacity() != room) ++grown;
  }
  CHECK(grown < 20);
}
