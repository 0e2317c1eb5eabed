// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Memory that the processes of one node map together, and the reduction of vectors that lie
/// in it.

#include <cohort/core/config.hpp>
#include <cohort/core/process.hpp>
#include <cohort/mpi/native.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::shm {

/// Anonymous memory of zeros that other processes of this node can map while its maker keeps it
/// open. It has no name in a file system: nothing is left behind, however a process ends, and the
/// size of /dev/shm is no limit.
class segment {
 public:
  /// Tells another process where to find it. Trivially copyable: send it as it is.
  struct address {
    std::uint64_t host = 0;   ///< process::host_id() of its maker
    std::uint64_t space = 0;  ///< of process ids
    std::uint64_t nonce = 0;
    std::uint64_t bytes = 0;  ///< 0: nowhere
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
  };

  segment() noexcept = default;
  /// Makes one with `bytes` for use. Throws std::system_error, also where the node's memory does
  /// not suffice: the pages are there when this returns.
  explicit segment(std::size_t bytes);
  /// Maps that of another process. Throws std::system_error: not_supported on another node or in
  /// another container, else what the system reports.
  explicit segment(const address& of);
  segment(segment&& other) noexcept { swap(other); }
  segment& operator=(segment&& other) noexcept {
    segment(std::move(other)).swap(*this);
    return *this;
  }
  ~segment();

  [[nodiscard]] const address& where() const noexcept { return where_; }
  /// All have mapped it: from now on nobody else can.
  void seal() noexcept;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {base_ == nullptr ? nullptr : base_ + header, static_cast<std::size_t>(where_.bytes)};
  }

 private:
  static constexpr std::size_t header = 4096;  // holds the nonce; what follows begins on a page

  void map(int descriptor);
  void swap(segment& other) noexcept {
    std::swap(where_, other.where_);
    std::swap(base_, other.base_);
  }

  address where_;
  std::byte* base_ = nullptr;
};

/// Reduces `count` elements of each of `in`, in this order, into `out`, which may be one of them
/// and overlaps no other; all aligned for the type. A plain loop for the arithmetic types, f16 and
/// bf16 and sum, product, minimum and maximum; MPI_Reduce_local, vector by vector, for all else.
/// One pass over memory either way.
class reducer {
 public:
  reducer() noexcept = default;
  /// Any operation of MPI, and any type that is one block of bytes.
  reducer(MPI_Datatype type, MPI_Op operation) noexcept;
  void operator()(std::byte* out, std::span<const std::byte* const> in, std::size_t count,
                  std::vector<std::byte>& scratch) const;
  [[nodiscard]] bool is_plain() const noexcept { return plain_ != nullptr; }

 private:
  using plain_loop = void (*)(std::byte* out, const std::byte* const* in, std::size_t vectors,
                              std::size_t count);
  plain_loop plain_ = nullptr;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op operation_ = MPI_OP_NULL;
};

namespace detail {

/// A part of the memory that this process has for backends that nobody has asked for.
class automatic_memory {
 public:
  /// Throws cohort::error where the process would have more than `most`.
  automatic_memory(std::size_t bytes, std::size_t most);
  automatic_memory(const automatic_memory&) = delete;
  automatic_memory& operator=(const automatic_memory&) = delete;
  ~automatic_memory();
  /// Of the process.
  [[nodiscard]] static std::size_t used() noexcept;

 private:
  std::size_t bytes_;
};

}  // namespace detail

/// Bytes of one element of `type`; 0 if it is not one block of bytes.
[[nodiscard]] std::size_t block_size(MPI_Datatype type) noexcept;

}  // namespace cohort::shm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/plane/memory.ipp>
#endif
