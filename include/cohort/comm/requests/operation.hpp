// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file An operation that MPI works on. For the room `requests` see `source.hpp`.

#include <cohort/core/failure.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pending_age.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <system_error>

namespace cohort::comm {

class communicator_state;
class poster;

/// What a probe does with the message it finds.
enum class probe_kind : std::uint8_t {
  look,      ///< leaves it in MPI's queue (`MPI_Iprobe`)
  take,      ///< takes it out, to be received by a handle (`MPI_Improbe`)
  elsewhere  ///< asks nobody: what its operation waits for comes another way, and ends it only here
};

/// An operation that MPI works on: some requests, and what a stall report says about it.
///
/// It is finished when all its requests are. An operation of several stages (look for a message,
/// then receive it) overrides what happens then through `advance`.
class request_operation : public progress::operation {
 public:
  /// Remembers the first error of any request.
  void fail(std::error_code why) noexcept {
    if (category_ != nullptr || !why) return;
    value_ = why.value();
    category_ = &why.category();
  }
  /// Inside a catch block: the code of what was thrown. What has none is for want of memory.
  void fail_as_thrown() noexcept {
    try {
      throw;
    } catch (const std::system_error& problem) {
      fail(problem.code());
    } catch (...) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
  }
  [[nodiscard]] bool failed() const noexcept { return category_ != nullptr; }
  [[nodiscard]] std::error_code error() const noexcept {
    return category_ == nullptr ? std::error_code() : std::error_code(value_, *category_);
  }

  /// Called with the source locked when every request is complete. Returns true if it has added
  /// more requests and goes on.
  using advance_function = bool (*)(request_operation*);

  const char* verb = "";                  ///< for reports
  std::uint64_t sequence = 0;             ///< of the communicator; 0: it does not count this one
  std::size_t bytes = 0;                  ///< what it moves; widens the spin time
  int rank = -1;                          ///< in its communicator, for reports
  communicator_state* live_on = nullptr;  ///< the communicator that counts it as live, if one does
  int peer = -1;                          ///< other rank, where there is one
  bool cancellable = false;               ///< the request added last is a receive
  bool stalls = true;  ///< false: nobody waits for it, or the awaiter warns by name
  /// Nobody waits for it, ever: at the end of the context it stays with MPI, and so does this
  /// communicator.
  communicator_state* optional_on = nullptr;
  MPI_Status status;                    ///< of the request added last
  MPI_Request left = MPI_REQUEST_NULL;  ///< what MPI left of the request: inactive, if persistent
  MPI_Message message = MPI_MESSAGE_NULL;  ///< what a matched probe found

  /// Before a backend is given an operation whose handler may leave before its end.
  void enter_backend() noexcept { with_backend_.store(1, std::memory_order_relaxed); }
  /// Before that operation is completed, from any thread.
  void leave_backend() noexcept {
    if (with_backend_.load(std::memory_order_acquire) == 0) return;
    for (std::uint8_t here = 1; !with_backend_.compare_exchange_weak(here, 0);) here = 1;
  }
  /// While it lives, an operation that a backend has does not leave that. False: none has it.
  class stay_in_backend {
   public:
    explicit stay_in_backend(request_operation& op) noexcept : op_(op) {
      std::uint8_t here = 1;
      stays_ = op.with_backend_.compare_exchange_strong(here, 2);
    }
    ~stay_in_backend() {
      if (stays_) op_.with_backend_.store(1, std::memory_order_release);
    }
    stay_in_backend(const stay_in_backend&) = delete;
    stay_in_backend& operator=(const stay_in_backend&) = delete;
    explicit operator bool() const noexcept { return stays_; }

   private:
    request_operation& op_;
    bool stays_;
  };

 protected:
  explicit request_operation(function run) noexcept : operation(run) {}
  ~request_operation() = default;

  advance_function advance_ = nullptr;
  bool advances_failed_ = false;  // its arguments with those of other ranks: queued to be posted
  bool waits_for_turn_ = false;   // checked, and an operation started earlier is not: no requests

 private:
  friend class request_counts;
  friend class request_list;
  friend class request_source;
  friend class cross_rank_check;
  friend class creation;
  friend class backend_completion;
  friend class poster;
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  // An error_code in two parts: its default constructor is a call into the standard library.
  const std::error_category* category_ = nullptr;
  int value_ = 0;
  progress::pending_age age_;
  std::size_t slot_ = nowhere;  // in the list of requests, or of probes, of the one added last
  std::uint32_t parts_ = 0;     // requests and probes not yet complete
  bool is_probe_ = false;
  bool idle_ = false;       // a posted control receive: nobody waits for it
  bool announced_ = false;  // a control receive that somebody waits for: a bell rings
  bool cancelled_ = false;  // MPI_Cancel was called; a second call crashes Open MPI 4.1
  std::atomic<std::uint8_t> with_backend_{0};  // 1: it has the operation; 2: and may not let it go
};

/// What comes before an operation is posted: the comparison of its arguments between ranks
/// (`checks::cross_rank`), data that are not there yet, operations that were started earlier. An
/// interface, so that only files that make a source compile it.
class argument_check {
 public:
  using post_function = void (*)(request_operation*);
  /// Among the values to agree on: this rank has no say, whatever the others have.
  static constexpr std::int64_t any_value = std::numeric_limits<std::int64_t>::min();
  virtual ~argument_check() = default;
  virtual int post(const std::array<std::int64_t, 4>& agreed, poster& to) = 0;
  virtual bool completed() = 0;
  [[nodiscard]] virtual bool done() const noexcept = 0;
  /// Before `post`: the operation is not posted before `open`, and with an error never. While it
  /// is being posted: more of it follows before `open`. Collectives that are started after it are
  /// posted after that. `open` with the source locked.
  virtual void hold() noexcept = 0;
  virtual void open(std::error_code why) = 0;
  virtual void explain(failure_text& text) const = 0;
};

}  // namespace cohort::comm
