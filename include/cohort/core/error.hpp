// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The error codes of the library itself and the exception classes that carry facts.

#include <cohort/core/config.hpp>

#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// What can go wrong before or beside MPI. Errors that MPI reports have the category of
/// mpi/error.hpp instead.
enum class errc {
  wrong_thread = 1,         ///< below SERIALIZED: a call from a thread that is not the main thread
  finalized,                ///< MPI is already finalized
  not_initialized,          ///< MPI, or what needs it, is not initialized yet
  bad_root,                 ///< the root is not a rank of the communicator
  bad_rank,                 ///< source or destination is not a rank of the communicator
  bad_tag,                  ///< the tag is negative or above the limit of the MPI library
  size_mismatch,            ///< buffer sizes that cannot be right on this rank
  cross_rank_mismatch,      ///< the ranks gave different sizes, types, operations or roots
  message_too_long,         ///< the message that arrived does not fit the receive buffer
  count_too_large,          ///< the count cannot be expressed to this MPI library
  invalid_argument,         ///< an argument outside its documented range
  invalid_communicator,     ///< a null communicator, or one of the wrong kind
  not_supported,            ///< a combination that this build or this MPI library cannot do
  deadline_exceeded,        ///< the deadline passed first
  stalled,                  ///< no progress for longer than the stated bound
  closed,                   ///< the endpoint has been closed or is leaving
  peer_lost,                ///< a rank that is needed has left or has failed
  engine_stopped,           ///< the execution context went away with the operation in flight
  single_thread_violation,  ///< a second thread or engine where the options promised one
  not_accepting,            ///< the rank has joined or left: it submits nothing now
  peer_joined,              ///< a rank that is needed has joined
  data_operation_failed,    ///< an elected operation failed on some rank
  duplicate_name,           ///< strict mode: the name is in use
  not_local,                ///< the key's source (of a send) or destination is another rank
  stale_incarnation,        ///< the key names an earlier process of that rank
  type_mismatch,            ///< the value is of another type than the receive asks for
  step_cleaned,             ///< the step has been cleaned up
  aborted,                  ///< the step was aborted by the other rank
  duplicate_key,            ///< single use: the key has been sent or received before
  remote,                   ///< an exception of another process without a counterpart here
  manager_reused,           ///< the cluster manager was shut down, or its launch has failed
  launch_failed,            ///< the workers could not be started
  binary_mismatch,          ///< another rank runs another program
  unknown_function,         ///< the call names a function that this program does not have
  refused,                  ///< the other side does not take this request
  no_device,                ///< there is no GPU, or no driver for it
  wrong_device,             ///< a stream and a buffer are on different devices
  device_ordered,           ///< a coordinator orders what runs on the device
  withdrawn,                ///< a rank took the operation back before all were ready
  task_failed,              ///< a task of a graph, or one that it depends on, has thrown
  not_spawned,              ///< no rank has spawned or put the task that is needed
  cycle,                    ///< the task depends on itself, directly or through others
  taken,                    ///< the value has gone to its last reader
  cancelled,                ///< the scope of the task graph was cancelled
  stale_name,               ///< the task was named before the last fence
  diverged,                 ///< the task was spawned before with another definition
  not_initialised = not_initialized
};

}  // namespace cohort

template <>
struct std::is_error_code_enum<cohort::errc> : std::true_type {};

namespace cohort {

/// The category of errc; its name is "cohort".
const std::error_category& cohort_category() noexcept;

/// Found by argument-dependent lookup when an errc converts to std::error_code.
std::error_code make_error_code(errc code) noexcept;

/// The base of every exception the library throws on its own account. Errors of MPI are thrown as
/// plain std::system_error with the code of their own category.
class error : public std::system_error {
 public:
  explicit error(std::error_code code) : std::system_error(code) {}
  error(std::error_code code, const std::string& text) : std::system_error(code, text) {}
  error(errc code, const std::string& text) : error(make_error_code(code), text) {}
};

/// Which ranks an operation was waiting for, as far as that is known. Ascending.
struct stall_facts {
  std::vector<int> ready;    ///< had submitted it
  std::vector<int> missing;  ///< had not
  std::vector<int> silent;   ///< did not answer when they were asked
  std::vector<int> unknown;  ///< could only be asked through a silent rank
};

/// A deadline passed before the operation could complete.
class deadline_error : public error {
 public:
  explicit deadline_error(const std::string& text) : error(errc::deadline_exceeded, text) {}
  deadline_error(stall_facts waited_for, const std::string& text)
      : error(errc::deadline_exceeded, text), stall_(std::move(waited_for)) {}

  /// Empty for operations that are not coordinated.
  [[nodiscard]] const stall_facts& stall() const noexcept { return stall_; }

 private:
  stall_facts stall_;
};

/// An error that is about some ranks.
class rank_error : public error {
 public:
  rank_error(errc code, std::vector<int> ranks, const std::string& text)
      : error(code, text), ranks_(std::move(ranks)) {}

  /// In ascending order.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  std::vector<int> ranks_;
};

/// Ranks that the operation needs have left or have failed: ranks() says which.
class peer_lost_error : public rank_error {
 public:
  peer_lost_error(std::vector<int> ranks, const std::string& text)
      : rank_error(errc::peer_lost, std::move(ranks), text) {}
};

/// What the others are told at most, in bytes, of why a rank has left, and where: 960 of the
/// reason.
inline constexpr std::size_t longest_reason = 1024;

/// Why a rank leaves, and where the program says so: "cannot open weights.bin (train.cpp:41)".
[[nodiscard]] inline std::string reason_for_leaving(std::string_view why,
                                                    const std::source_location& where) {
  std::string_view file = where.file_name();
  file.remove_prefix(file.rfind('/') + 1);  // all of it where there is none
  std::string text(why.empty() ? "no reason given" : why.substr(0, longest_reason - 64));
  text.append(" (").append(file.substr(0, 48)).append(":");
  return text.append(std::to_string(where.line())).append(")");
}

/// Ranks whose data the operation needs have joined: ranks() says which.
class joined_error : public rank_error {
 public:
  joined_error(std::vector<int> ranks, const std::string& text)
      : rank_error(errc::peer_joined, std::move(ranks), text) {}
};

/// A data operation that had been elected failed on the rank in ranks(), and the coordinator with
/// it.
class data_error : public rank_error {
 public:
  data_error(std::vector<int> ranks, const std::string& text)
      : rank_error(errc::data_operation_failed, std::move(ranks), text) {}
};

/// An operation was taken back by a rank before all ranks were ready for it: ranks() says by which.
class withdrawn_error : public rank_error {
 public:
  withdrawn_error(std::vector<int> ranks, const std::string& text)
      : rank_error(errc::withdrawn, std::move(ranks), text) {}
  withdrawn_error(int rank, std::string reason, stall_facts waited_for, const std::string& text)
      : rank_error(errc::withdrawn, {rank}, text),
        reason_(std::move(reason)),
        stall_(std::move(waited_for)) {}

  /// "cancelled", "a deadline", …
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// For a deadline.
  [[nodiscard]] const stall_facts& stall() const noexcept { return stall_; }

 private:
  std::string reason_;
  stall_facts stall_;
};

/// The ranks do not agree about one operation.
class mismatch_error : public rank_error {
 public:
  /// What some of the ranks gave.
  struct side {
    std::vector<int> ranks;           ///< known to be on this side, ascending
    std::vector<std::string> values;  ///< of each field that differs
    std::string site;                 ///< "file:line" of one of them; "?" if not known
  };

  mismatch_error(const std::string& field, std::vector<int> ranks, const std::string& text)
      : rank_error(errc::cross_rank_mismatch, std::move(ranks), text), fields_{field} {}
  /// ranks() is then the last side's.
  mismatch_error(std::vector<std::string> fields, std::vector<side> sides, const std::string& text)
      : rank_error(errc::cross_rank_mismatch,
                   sides.empty() ? std::vector<int>() : sides.back().ranks, text),
        fields_(std::move(fields)),
        sides_(std::move(sides)) {}

  /// The names of the properties that differ, for example "shape" and "root".
  [[nodiscard]] const std::vector<std::string>& fields() const noexcept { return fields_; }
  /// The first of them.
  [[nodiscard]] const std::string& field() const noexcept { return fields_.front(); }
  [[nodiscard]] const std::vector<side>& sides() const noexcept { return sides_; }

 private:
  std::vector<std::string> fields_;
  std::vector<side> sides_;
};

namespace detail {

/// The text of one code; a switch without default, so that the compiler names a forgotten one.
[[nodiscard]] inline const char* errc_text(errc code) noexcept {
  switch (code) {
    case errc::wrong_thread:
      return "called from a thread that may not use MPI at this thread level";
    case errc::finalized:
      return "MPI is already finalized";
    case errc::not_initialized:
      return "MPI is not initialized";
    case errc::bad_root:
      return "the root is not a rank of the communicator";
    case errc::bad_rank:
      return "the source or destination is not a rank of the communicator";
    case errc::bad_tag:
      return "the tag is outside the range that MPI allows";
    case errc::size_mismatch:
      return "the buffer sizes do not fit each other";
    case errc::cross_rank_mismatch:
      return "the ranks do not agree about the operation";
    case errc::message_too_long:
      return "the message is longer than the receive buffer";
    case errc::count_too_large:
      return "the count is too large for this MPI library";
    case errc::invalid_argument:
      return "invalid argument";
    case errc::invalid_communicator:
      return "invalid communicator";
    case errc::not_supported:
      return "not supported";
    case errc::deadline_exceeded:
      return "the deadline passed";
    case errc::stalled:
      return "no progress within the stated bound";
    case errc::closed:
      return "the endpoint is closed";
    case errc::peer_lost:
      return "a rank that is needed has left or has failed";
    case errc::engine_stopped:
      return "the execution context ended with the operation in flight";
    case errc::single_thread_violation:
      return "a second thread or engine where the options promised only one";
    case errc::not_accepting:
      return "this rank has joined or left and submits nothing";
    case errc::peer_joined:
      return "a rank that is needed has joined";
    case errc::data_operation_failed:
      return "a data operation failed";
    case errc::duplicate_name:
      return "the name is in use";
    case errc::not_local:
      return "the key does not belong to this rank";
    case errc::stale_incarnation:
      return "the key names an earlier process of its source";
    case errc::type_mismatch:
      return "the value has another type";
    case errc::step_cleaned:
      return "the step has been cleaned up";
    case errc::aborted:
      return "the step was aborted by the other rank";
    case errc::duplicate_key:
      return "the key has been used before";
    case errc::remote:
      return "an exception was thrown by another process";
    case errc::manager_reused:
      return "the cluster manager cannot be used any more";
    case errc::launch_failed:
      return "the workers could not be started";
    case errc::binary_mismatch:
      return "the processes do not run the same program";
    case errc::unknown_function:
      return "the call names a function that this program does not have";
    case errc::refused:
      return "the other side refuses the request";
    case errc::no_device:
      return "there is no device, or no driver for it";
    case errc::wrong_device:
      return "what is used together is on different devices";
    case errc::device_ordered:
      return "a coordinator orders the operations on this device";
    case errc::withdrawn:
      return "it was taken back before all ranks were ready";
    case errc::task_failed:
      return "a task has failed";
    case errc::not_spawned:
      return "no rank has spawned the task";
    case errc::cycle:
      return "the task depends on itself";
    case errc::taken:
      return "the value has been taken";
    case errc::cancelled:
      return "the scope was cancelled";
    case errc::stale_name:
      return "the task was named in an earlier window";
    case errc::diverged:
      return "the task has been spawned with another definition";
  }
  return "unknown error of cohort";
}

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "cohort"; }

  [[nodiscard]] std::string message(int value) const override {
    return errc_text(static_cast<errc>(value));
  }

  // The generic conditions let callers that do not know cohort ask "was it a timeout?".
  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    switch (static_cast<errc>(value)) {
      case errc::deadline_exceeded:
        return std::errc::timed_out;
      case errc::message_too_long:
        return std::errc::message_size;
      case errc::not_supported:
        return std::errc::not_supported;
      case errc::count_too_large:
        return std::errc::value_too_large;
      case errc::wrong_thread:
        return std::errc::operation_not_permitted;
      case errc::bad_root:
      case errc::bad_rank:
      case errc::bad_tag:
      case errc::size_mismatch:
      case errc::invalid_argument:
      case errc::invalid_communicator:
        return std::errc::invalid_argument;
      default:
        return {value, *this};
    }
  }
};

}  // namespace detail

inline const std::error_category& cohort_category() noexcept {
  // Never destroyed: codes may be compared and printed by static destructors.
  static const detail::category& instance = *new detail::category;
  return instance;
}

inline std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), cohort_category()};
}

}  // namespace cohort
