// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The one place that includes NCCL, if there is one: `COHORT_HAS_NCCL` says so; and its result
/// codes as std::error_code, with NCCL's own text.
///
/// Without CUDA or without <nccl.h> the headers of this layer declare nothing else. A program may
/// define it as 0 to leave the layer out.

#include <cohort/device/native.hpp>

#if !defined(COHORT_HAS_NCCL)
#if COHORT_HAS_CUDA && __has_include(<nccl.h>)
#define COHORT_HAS_NCCL 1
#else
#define COHORT_HAS_NCCL 0
#endif
#endif

#if COHORT_HAS_NCCL

#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>

#include <nccl.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#error "the nccl layer of cohort needs NCCL 2.18 or newer; -DCOHORT_HAS_NCCL=0 leaves it out"
#endif

namespace cohort::nccl {

/// The version of the library that is loaded, as `NCCL_VERSION_CODE` numbers them (22809), or 0 if
/// it does not say.
[[nodiscard]] inline int library_version() noexcept {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

/// The category of codes that NCCL returned; its name is "nccl". It is registered, so a code keeps
/// its category on the way from another process (core/outcome.hpp).
const std::error_category& nccl_category() noexcept;

/// The code of a return value; no error for `ncclSuccess`.
[[nodiscard]] std::error_code make_error(ncclResult_t code) noexcept;

/// Throws std::system_error with the code and the name of the call, unless it succeeded or goes on
/// in the background.
void check(ncclResult_t code, const char* call);

namespace detail {

/// What is wrong, as a value.
struct problem {
  std::error_code code;
  std::string text;
};
[[nodiscard]] inline bool failed(ncclResult_t code) noexcept {
  return code != ncclSuccess && code != ncclInProgress;
}
/// The state of a communicator's calls, or the code with which NCCL refuses to tell it.
[[nodiscard]] inline ncclResult_t state_of(ncclComm_t comm) noexcept {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return failed(asked) ? asked : state;
}
/// The code and the text of an exception.
[[nodiscard]] problem problem_of(const std::exception_ptr& why);

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "nccl"; }
  [[nodiscard]] std::string message(int value) const override {
    return ncclGetErrorString(static_cast<ncclResult_t>(value));
  }
  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    if (value == ncclInvalidArgument) return std::errc::invalid_argument;
    return {value, *this};
  }
};

/// At the start of the program: a code of another process may come before any of this one.
inline const bool category_is_registered = [] {
  register_category(nccl_category());
  return true;
}();

}  // namespace detail

inline const std::error_category& nccl_category() noexcept {
  static const detail::category& instance = *new detail::category;
  return instance;
}

inline detail::problem detail::problem_of(const std::exception_ptr& why) {
  try {
    if (why) std::rethrow_exception(why);
    return {};
  } catch (const std::system_error& failed) {
    return {failed.code(), failed.what()};
  } catch (const std::bad_alloc&) {
    return {std::make_error_code(std::errc::not_enough_memory), "no memory of the host"};
  } catch (const std::exception& failed) {
    return {make_error_code(errc::aborted), failed.what()};
  }
}

inline std::error_code make_error(ncclResult_t code) noexcept {
  return {static_cast<int>(code), nccl_category()};
}

inline void check(ncclResult_t code, const char* call) {
  if (code == ncclSuccess || code == ncclInProgress) [[likely]]
    return;
  throw std::system_error(make_error(code), call);
}

}  // namespace cohort::nccl

#endif
