// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/memory.hpp.

#include <cohort/core/copy.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/error.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/op.hpp>
#include <cohort/shm/memory.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <type_traits>

namespace cohort::shm {

namespace detail {

[[noreturn]] COHORT_INLINE void throw_errno(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

/// Process ids mean the same to processes for which this is the same.
COHORT_INLINE std::uint64_t process_space() noexcept {
  struct stat about{};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

/// Closes what it holds.
struct descriptor {
  int value;
  ~descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace detail

COHORT_INLINE segment::segment(std::size_t bytes) {
#if defined(__linux__)
  where_.nonce = random_number();
  const int made = ::memfd_create("cohort", MFD_CLOEXEC);
  if (made < 0) detail::throw_errno("memfd_create");
  where_.descriptor = made;
  try {
    // Without this the first touch of a page that is not to be had would be a signal.
    if (const int bad = ::posix_fallocate(made, 0, static_cast<off_t>(header + bytes))) {
      throw std::system_error(bad, std::generic_category(), "posix_fallocate");
    }
    where_.bytes = bytes;
    map(made);
  } catch (...) {
    seal();
    throw;
  }
  where_.host = process::host_id();
  where_.space = detail::process_space();
  where_.process = ::getpid();
  std::memcpy(base_, &where_.nonce, sizeof where_.nonce);
#else
  throw std::system_error(std::make_error_code(std::errc::not_supported),
                          std::to_string(bytes) + " bytes of shared memory");
#endif
}

COHORT_INLINE segment::segment(const address& of) {
  if (of.bytes == 0 || of.host != process::host_id() || of.space == 0 ||
      of.space != detail::process_space()) {
    throw std::system_error(std::make_error_code(std::errc::not_supported),
                            "the other process is on another node or in another container");
  }
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", of.process, of.descriptor);
  // Should the descriptor have become something else, opening it must do nothing.
  const detail::descriptor opened{::open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (opened.value < 0) detail::throw_errno(path.data());
  struct stat about{};
  if (::fstat(opened.value, &about) != 0) detail::throw_errno("fstat");
  const auto expected = static_cast<std::uint64_t>(header) + of.bytes;
  if (!S_ISREG(about.st_mode) || static_cast<std::uint64_t>(about.st_size) != expected) {
    throw std::system_error(std::make_error_code(std::errc::not_supported), path.data());
  }
  where_ = of;
  where_.descriptor = -1;
  map(opened.value);
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, base_, sizeof nonce);
  if (nonce != of.nonce) {
    segment().swap(*this);
    throw std::system_error(std::make_error_code(std::errc::not_supported), path.data());
  }
}

COHORT_INLINE segment::~segment() {
  seal();
  if (base_ != nullptr) ::munmap(base_, header + static_cast<std::size_t>(where_.bytes));
}

COHORT_INLINE void segment::seal() noexcept {
  if (where_.descriptor >= 0) ::close(where_.descriptor);
  where_.descriptor = -1;
}

COHORT_INLINE void segment::map(int descriptor) {
  void* const mapped = ::mmap(nullptr, header + static_cast<std::size_t>(where_.bytes),
                              PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) detail::throw_errno("mmap");
  base_ = static_cast<std::byte*>(mapped);
}

namespace detail {

/// Blocks of a constant length, in an array that nothing else can point to: what compilers
/// vectorise without being asked.
template <class T, class Op>
void reduce_plain(std::byte* out, const std::byte* const* in, std::size_t vectors,
                  std::size_t count) {
  constexpr std::size_t block = 1024 / sizeof(T);
  std::array<T, block> sum;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    const std::size_t bytes = length * sizeof(T);
    std::size_t vector = 1;
    if (vectors > 1 && length == block) {  // without a copy of the first
      const T* const a = reinterpret_cast<const T*>(in[0]) + begin;
      const T* const b = reinterpret_cast<const T*>(in[1]) + begin;
      for (std::size_t i = 0; i < block; ++i) sum[i] = Op::template combine<T>(a[i], b[i]);
      vector = 2;
    } else {
      std::memcpy(sum.data(), in[0] + begin * sizeof(T), bytes);
    }
    for (; vector < vectors; ++vector) {
      const T* const next = reinterpret_cast<const T*>(in[vector]) + begin;
      if (length == block) {
        for (std::size_t i = 0; i < block; ++i) sum[i] = Op::template combine<T>(sum[i], next[i]);
      } else {
        for (std::size_t i = 0; i < length; ++i) sum[i] = Op::template combine<T>(sum[i], next[i]);
      }
    }
    std::memcpy(out + begin * sizeof(T), sum.data(), bytes);
  }
}

/// Numbers of 16 bits are combined as float, and rounded once.
template <class Half, class Op>
void reduce_half(std::byte* out, const std::byte* const* in, std::size_t vectors,
                 std::size_t count) {
  constexpr std::size_t block = 256;
  std::array<float, block> sum;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    for (std::size_t vector = 0; vector < vectors; ++vector) {
      const Half* const next = reinterpret_cast<const Half*>(in[vector]) + begin;
      if (vector == 0) {
        for (std::size_t i = 0; i < length; ++i) sum[i] = next[i];
      } else {
        for (std::size_t i = 0; i < length; ++i) {
          sum[i] = Op::template combine<float>(sum[i], next[i]);
        }
      }
    }
    Half* const to = reinterpret_cast<Half*>(out) + begin;
    for (std::size_t i = 0; i < length; ++i) to[i] = static_cast<Half>(sum[i]);
  }
}

/// Their types and operations are the library's own, which makes them when it is asked for them.
template <class Half>
auto half_loop_for(MPI_Datatype type, MPI_Op operation) {
  using loop = void (*)(std::byte*, const std::byte* const*, std::size_t, std::size_t);
  if (type != mpi::reduction_type_of<Half>()) return loop{nullptr};
  if (operation == mpi::op_of<op::sum_t, Half>()) return loop{&reduce_half<Half, op::sum_t>};
  if (operation == mpi::op_of<op::product_t, Half>())
    return loop{&reduce_half<Half, op::product_t>};
  if (operation == mpi::op_of<op::min_t, Half>()) return loop{&reduce_half<Half, op::min_t>};
  if (operation == mpi::op_of<op::max_t, Half>()) return loop{&reduce_half<Half, op::max_t>};
  return loop{nullptr};
}

struct plain_type {
  MPI_Datatype type;
  std::size_t size;
  std::array<void (*)(std::byte*, const std::byte* const*, std::size_t, std::size_t), 4> loops;
};

template <class T>
plain_type plain_type_of() noexcept {
  return {mpi::datatype_of<T>(),
          sizeof(T),
          {&reduce_plain<T, op::sum_t>, &reduce_plain<T, op::product_t>,
           &reduce_plain<T, op::min_t>, &reduce_plain<T, op::max_t>}};
}

COHORT_INLINE const plain_type* plain_type_for(MPI_Datatype type) noexcept {
  // Handles of MPI may be addresses that are known at run time only.
  static const std::array<plain_type, 10> all{
      plain_type_of<float>(),        plain_type_of<double>(),        plain_type_of<std::int32_t>(),
      plain_type_of<std::int64_t>(), plain_type_of<std::uint32_t>(), plain_type_of<std::uint64_t>(),
      plain_type_of<std::int8_t>(),  plain_type_of<std::uint8_t>(),  plain_type_of<std::int16_t>(),
      plain_type_of<std::uint16_t>()};
  for (const plain_type& each : all) {
    if (each.type == type) return &each;
  }
  return nullptr;
}

}  // namespace detail

COHORT_INLINE reducer::reducer(MPI_Datatype type, MPI_Op operation) noexcept
    : type_(type), operation_(operation) {
  const detail::plain_type* const plain = detail::plain_type_for(type);
  if (plain == nullptr) {
    try {
      plain_ = detail::half_loop_for<bf16>(type, operation);
      if (plain_ == nullptr) plain_ = detail::half_loop_for<f16>(type, operation);
    } catch (...) {  // MPI_Reduce_local does it
    }
    return;
  }
  static const std::array<MPI_Op, 4> operations{MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i] == operation) plain_ = plain->loops[i];
  }
}

COHORT_INLINE void reducer::operator()(std::byte* out, std::span<const std::byte* const> in,
                                       std::size_t count, std::vector<std::byte>& scratch) const {
  if (count == 0) return;
  if (plain_ != nullptr) return plain_(out, in.data(), in.size(), count);
  // MPI puts what comes first on the left: so from the last to the first, beside `out`, which may
  // be any of them.
  const std::size_t bytes = count * block_size(type_);
  if (scratch.size() < bytes) scratch.resize(bytes);
  copy_bytes(scratch.data(), in.back(), bytes);
  const mpi::lock calls;
  for (std::size_t vector = in.size() - 1; vector-- > 0;) {
    std::size_t done = 0;
    while (done < count) {  // MPI counts in an int
      const std::size_t some = std::min<std::size_t>(count - done, 1U << 30U);
      const std::size_t offset = done * (bytes / count);
      mpi::check(MPI_Reduce_local(in[vector] + offset, scratch.data() + offset,
                                  static_cast<int>(some), type_, operation_),
                 "MPI_Reduce_local");
      done += some;
    }
  }
  copy_bytes(out, scratch.data(), bytes);
}

namespace detail {

inline std::atomic<std::size_t>& all_automatic_memory() noexcept {
  static std::atomic<std::size_t> all{0};
  return all;
}

COHORT_INLINE automatic_memory::automatic_memory(std::size_t bytes, std::size_t most)
    : bytes_(bytes) {
  if (all_automatic_memory().fetch_add(bytes) + bytes <= most) return;
  all_automatic_memory().fetch_sub(bytes);
  throw error(errc::invalid_argument,
              "this process has no more than " + std::to_string(most) +
                  " bytes for backends that are chosen by themselves (COHORT_SHM_MEMORY)");
}
COHORT_INLINE automatic_memory::~automatic_memory() { all_automatic_memory().fetch_sub(bytes_); }
COHORT_INLINE std::size_t automatic_memory::used() noexcept { return all_automatic_memory(); }

}  // namespace detail

COHORT_INLINE std::size_t block_size(MPI_Datatype type) noexcept {
  if (type == MPI_BYTE) return 1;
  if (const detail::plain_type* const plain = detail::plain_type_for(type)) return plain->size;
  const mpi::lock calls;
  int size = 0;
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_low = 0;
  MPI_Aint true_extent = 0;
  if (MPI_Type_size(type, &size) != MPI_SUCCESS ||
      MPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS ||
      MPI_Type_get_true_extent(type, &true_low, &true_extent) != MPI_SUCCESS) {
    return 0;
  }
  const bool whole = low == 0 && true_low == 0 && extent == size && true_extent == size;
  return whole ? static_cast<std::size_t>(size) : 0;
}

}  // namespace cohort::shm
