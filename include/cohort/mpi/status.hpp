// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What MPI says about a finished operation: source, tag and amount of data.

#include <cohort/core/element.hpp>
#include <cohort/core/error.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/native.hpp>

#include <cstddef>
#include <string>

namespace cohort {

/// Receive from any rank, or with any tag; and the rank that is nobody.
inline constexpr int any_source = MPI_ANY_SOURCE;
inline constexpr int any_tag = MPI_ANY_TAG;
inline constexpr int no_rank = MPI_PROC_NULL;

/// The status of a finished operation. A value: copy it freely. Operations without a message, such
/// as sends, leave it empty.
class status {
 public:
  /// An empty status: any source, any tag, no data.
  constexpr status() noexcept;
  explicit status(const MPI_Status& native) noexcept : native_(native) {}

  [[nodiscard]] int source() const noexcept { return native_.MPI_SOURCE; }
  [[nodiscard]] int tag() const noexcept { return native_.MPI_TAG; }

  /// The bytes of the message, 64-bit. Asks MPI, so it throws errc::finalized once MPI is gone.
  [[nodiscard]] std::size_t bytes() const;

  /// The elements of the message. Throws errc::size_mismatch if the message is not a whole number
  /// of them. For data that has a gap inside (located), the gap is not counted as data.
  template <element T>
  [[nodiscard]] std::size_t count() const;

  /// Whether the operation was cancelled before it did anything.
  [[nodiscard]] bool cancelled() const;

  [[nodiscard]] const MPI_Status& native() const noexcept { return native_; }
  [[nodiscard]] MPI_Status& native() noexcept { return native_; }

 private:
  MPI_Status native_;
};

constexpr status::status() noexcept : native_{} {
  native_.MPI_SOURCE = MPI_ANY_SOURCE;
  native_.MPI_TAG = MPI_ANY_TAG;
  native_.MPI_ERROR = MPI_SUCCESS;
}

inline std::size_t status::bytes() const {
  if (!mpi::running()) {
    throw error(errc::finalized, "status::bytes");
  }
  const mpi::lock guard;
  MPI_Count result = 0;
  mpi::check(MPI_Get_elements_x(&native_, MPI_BYTE, &result), "MPI_Get_elements_x");
  return static_cast<std::size_t>(result);
}

template <element T>
std::size_t status::count() const {
  const std::size_t total = bytes();
  if (total % mpi::wire_size<T> != 0) {
    throw error(errc::size_mismatch,
                "a message of " + std::to_string(total) + " bytes is no whole number of elements");
  }
  return total / mpi::wire_size<T>;
}

inline bool status::cancelled() const {
  if (!mpi::running()) {
    throw error(errc::finalized, "status::cancelled");
  }
  const mpi::lock guard;
  int flag = 0;
  mpi::check(MPI_Test_cancelled(&native_, &flag), "MPI_Test_cancelled");
  return flag != 0;
}

}  // namespace cohort
