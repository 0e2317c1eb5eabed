// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one place for copies of many bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace cohort {

namespace detail {

/// Whether the target lies a little behind the source, as seen within a page, and the buffers are
/// so large that it matters.
[[nodiscard]] inline bool is_little_behind(const void* to, const void* from,
                                           std::size_t bytes) noexcept {
  constexpr std::uintptr_t page = 4096;
  const auto distance =
      reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  return bytes >= 2048 && (distance - 1) % page < 31;
}

/// Whether std::memcpy is slow for these buffers. From 2 KiB up to the size from which it no longer
/// goes through the cache, glibc copies with `rep movsb`, which AMD's processors since Zen 3 do
/// byte by byte where the target lies 1 to 31 bytes behind the source: about 2 GB a second, a
/// twentieth of what else they do. Intel's do not: there it takes a third of what copy_in_lines
/// takes. *Source*: measured by bench_copy; glibc bug 30994, mended in 2.39 for some of the sizes.
[[nodiscard]] inline bool memcpy_is_slow([[maybe_unused]] const void* to,
                                         [[maybe_unused]] const void* from,
                                         [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__x86_64__) && defined(__GLIBC__)
  return is_little_behind(to, from, bytes) && __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__) && defined(__GLIBC__)
/// In registers that every x86-64 processor has: stores that are aligned, in lines so long that few
/// loads follow a store which looks like one to the same place.
[[gnu::noinline]] inline void copy_in_lines(void* to, const void* from,
                                            std::size_t bytes) noexcept {
  using word = long long __attribute__((vector_size(16)));
  constexpr std::size_t line = 8 * sizeof(word);
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(out) % sizeof(word));
  std::memcpy(out, in, head);
  in += head;
  out += head;
  for (bytes -= head; bytes >= line; bytes -= line, in += line, out += line) {
    const auto load = [in](std::size_t i) {
      word what;
      std::memcpy(&what, in + i * sizeof(word), sizeof(word));
      return what;
    };
    const auto store = [out](std::size_t i, const word& what) {
      std::memcpy(out + i * sizeof(word), &what, sizeof(word));
    };
    // No array: g++ 12 would keep it in memory as well.
    word a = load(0);
    const word b = load(1), c = load(2), d = load(3), e = load(4), f = load(5), g = load(6),
               h = load(7);
    __asm__("" : "+x"(a));  // or the compiler makes a call of memcpy of this
    store(0, a), store(1, b), store(2, c), store(3, d);
    store(4, e), store(5, f), store(6, g), store(7, h);
  }
  std::memcpy(out, in, bytes);
}
#endif

}  // namespace detail

/// Copies between buffers that do not overlap, as std::memcpy does, but neither slowly where that
/// is slow, nor undefined for no bytes at no place. *Cost*: that of std::memcpy, and a branch.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) return;
#if defined(__x86_64__) && defined(__GLIBC__)
  if (detail::memcpy_is_slow(to, from, bytes)) return detail::copy_in_lines(to, from, bytes);
#endif
  std::memcpy(to, from, bytes);
}

/// The same for elements, as they are.
template <class T>
void copy_elements(T* to, const std::type_identity_t<T>* from, std::size_t count) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  copy_bytes(to, from, count * sizeof(T));
}

/// Appends to a vector. *Cost*: as copy_bytes; memory grows as by std::vector::insert.
inline void append_bytes(std::vector<std::byte>& to, std::span<const std::byte> from) {
  const std::size_t end = to.size();
  if (to.capacity() - end < from.size()) to.reserve(std::max(2 * to.capacity(), end + from.size()));
  if (detail::memcpy_is_slow(to.data() + end, from.data(), from.size())) {
    to.resize(end + from.size());  // which writes zeros, and is much faster all the same
    copy_bytes(to.data() + end, from.data(), from.size());
  } else {
    to.insert(to.end(), from.begin(), from.end());
  }
}

}  // namespace cohort
