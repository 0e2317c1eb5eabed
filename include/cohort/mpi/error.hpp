// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Return codes of MPI as std::error_code, with MPI's own text.

#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <string>
#include <system_error>

namespace cohort::mpi {

/// The category of codes that MPI returned; its name is "mpi" and its messages are those of
/// MPI_Error_string. While MPI is not running the message is only the number.
const std::error_category& mpi_category() noexcept;

/// The code of a return value; no error for MPI_SUCCESS.
[[nodiscard]] std::error_code make_error(int return_code) noexcept;

/// The error class, such as MPI_ERR_TRUNCATE, of a code in mpi_category(); MPI_SUCCESS for no
/// error, MPI_ERR_UNKNOWN for a code of another category. Return codes themselves may be more
/// specific than a class (in MPICH they are), so compare classes.
[[nodiscard]] int error_class(std::error_code code) noexcept;

/// Throws std::system_error with the code and the name of the call unless it succeeded.
void check(int return_code, const char* call);

namespace detail {

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "mpi"; }
  [[nodiscard]] inline std::string message(int value) const override;
};

[[noreturn]] inline void throw_error(int return_code, const char* call) {
  throw std::system_error(make_error(return_code), call);
}

}  // namespace detail

inline const std::error_category& mpi_category() noexcept {
  static const detail::category& instance = *new detail::category;
  return instance;
}

inline std::error_code make_error(int return_code) noexcept {
  return {return_code, mpi_category()};
}

inline int error_class(std::error_code code) noexcept {
  if (!code) {
    return MPI_SUCCESS;
  }
  if (code.category() != mpi_category() || !running()) {
    return MPI_ERR_UNKNOWN;
  }
  int result = MPI_ERR_UNKNOWN;
  const lock guard;
  MPI_Error_class(code.value(), &result);
  return result;
}

inline void check(int return_code, const char* call) {
  if (return_code != MPI_SUCCESS) [[unlikely]] {
    detail::throw_error(return_code, call);
  }
}

inline std::string detail::category::message(int value) const {
  // MPI_Error_string before MPI_Init or after MPI_Finalize would end the program.
  if (running() && is_allowed_thread()) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    const lock guard;
    if (MPI_Error_string(value, text, &length) == MPI_SUCCESS) {
      return {text, static_cast<std::size_t>(length)};
    }
  }
  return "MPI error " + std::to_string(value);
}

}  // namespace cohort::mpi
