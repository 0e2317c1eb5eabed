// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file An owned MPI request, for programs that use this layer without an event loop, and what MPI
/// says about a finished operation: source, tag and amount of data.

#include <cohort/core/element.hpp>
#include <cohort/core/error.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <sched.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

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

namespace cohort::mpi {

/// Owns a request: waits for it in the destructor, because MPI uses the buffer until then. With an
/// event loop, await it by cohort::wait instead.
///
/// Waiting gives the lock back between looks, so that other threads make progress.
class request {
 public:
  request() noexcept {}
  /// Takes over a request; MPI_REQUEST_NULL is complete.
  explicit request(MPI_Request owned) noexcept : native_(owned) {}
  request(request&& other) noexcept : native_(other.release()) {}
  request& operator=(request&& other) noexcept;
  ~request() { finish(); }

  /// Waits until the operation is complete. A request that is null, or persistent and not started,
  /// is complete with an empty status. Throws the error of the operation.
  cohort::status wait();
  /// The status if the operation is complete by now. Throws the error of the operation.
  [[nodiscard]] std::optional<cohort::status> test();
  /// Asks MPI to take a receive back; wait() then says whether it was. Call it once per operation.
  void cancel();

  /// Whether there is a request: after completion only a persistent one.
  [[nodiscard]] explicit operator bool() const noexcept { return native_ != MPI_REQUEST_NULL; }
  [[nodiscard]] MPI_Request native() const noexcept { return native_; }
  /// For functions that fill in a request. The object must be empty.
  [[nodiscard]] MPI_Request* out() noexcept { return &native_; }
  /// Gives up ownership.
  [[nodiscard]] MPI_Request release() noexcept { return std::exchange(native_, MPI_REQUEST_NULL); }

 private:
  void finish() noexcept;

  MPI_Request native_ = MPI_REQUEST_NULL;
};

inline request& request::operator=(request&& other) noexcept {
  if (this != &other) {
    finish();
    native_ = other.release();
  }
  return *this;
}

inline cohort::status request::wait() {
  for (;;) {
    if (const auto done = test()) {
      return *done;
    }
    ::sched_yield();
  }
}

inline std::optional<cohort::status> request::test() {
  if (native_ == MPI_REQUEST_NULL) {
    return cohort::status();
  }
  if (!running()) {
    throw error(errc::finalized, "mpi::request::test");
  }
  const lock calls;
  int flag = 0;
  MPI_Status native;
  check(MPI_Test(&native_, &flag, &native), "MPI_Test");
  return flag != 0 ? std::optional(cohort::status(native)) : std::nullopt;
}

inline void request::cancel() {
  if (native_ != MPI_REQUEST_NULL && running()) {
    const lock calls;
    check(MPI_Cancel(&native_), "MPI_Cancel");
  }
}

inline void request::finish() noexcept {
  while (native_ != MPI_REQUEST_NULL && running()) {
    const lock calls;
    int flag = 0;
    if (MPI_Test(&native_, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return;  // the operation has failed and is over; nobody is left to be told
    }
    if (flag != 0) {
      if (native_ != MPI_REQUEST_NULL) {
        MPI_Request_free(&native_);  // persistent, and inactive now
      }
      return;
    }
  }
}

}  // namespace cohort::mpi
