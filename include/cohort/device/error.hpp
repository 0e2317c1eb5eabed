// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Return codes of CUDA as std::error_code, with CUDA's own text, and after which of them nothing
/// works any more; and what the process remembers about each device: whether it is lost, and events
/// to be used again.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/error.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::device {

/// One device. Every function may be called from any thread.
///
/// *Lost*: a call has returned a sticky error. Nothing on that device works again in this process,
/// nothing is freed there, and everybody who waits for it ends with that error.
/// *Without frees*: something runs there that may never end. Memory and streams are leaked.
/// *Reset*: its context has gone and a new one may have taken its place. What was made before, an
/// older *generation*, has gone with it and is not destroyed by hand.
class device_state {
 public:
  /// The sticky error, or `cudaSuccess`.
  [[nodiscard]] cudaError_t lost() const noexcept {
    return static_cast<cudaError_t>(lost_.load(std::memory_order_acquire));
  }
  /// The first error stays.
  void lose(cudaError_t why) noexcept {
    int none = cudaSuccess;
    if (!lost_.compare_exchange_strong(none, static_cast<int>(why))) return;
    changes().fetch_add(1, std::memory_order_acq_rel);
  }

  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load(std::memory_order_acquire);
  }
  /// What was made in `seen` has gone. Only the first who notices counts.
  void context_gone(std::uint32_t seen) noexcept {
    if (!generation_.compare_exchange_strong(seen, seen + 1)) return;
    {
      const std::lock_guard hold(mutex_);
      events_.clear();  // they are gone, not ours to destroy
    }
    changes().fetch_add(1, std::memory_order_acq_rel);
  }
  /// Whether what was made in that generation is still there to be used and destroyed.
  [[nodiscard]] bool holds(std::uint32_t made_in) const noexcept {
    return lost() == cudaSuccess && made_in == generation();
  }

  /// Work on the device may never end, such as a kernel of a communicator that was given up. To
  /// free memory could then take for ever, so in this context nothing is freed any more.
  void stop_frees() noexcept { no_frees_in_.store(std::uint64_t(generation()) + 1); }
  /// Whether what was made in that generation is there, and is to be destroyed by its owner.
  [[nodiscard]] bool may_free(std::uint32_t made_in) const noexcept {
    return holds(made_in) && no_frees_in_.load() != std::uint64_t(made_in) + 1;
  }

  /// A communicator of NCCL is there, whose kernels wait for other ranks. MPI must not be given
  /// pointers into the memory of such a device, since kernels of its own might wait behind these.
  void add_launcher() noexcept { launchers_.fetch_add(1); }
  void remove_launcher() noexcept { launchers_.fetch_sub(1); }
  [[nodiscard]] bool has_launcher() const noexcept { return launchers_.load() > 0; }
  /// MPI has pointers into its memory now: no communicator of NCCL is made there.
  void lend() noexcept { lent_.fetch_add(1); }
  void take_back() noexcept { lent_.fetch_sub(1); }
  [[nodiscard]] bool is_lent() const noexcept { return lent_.load() > 0; }

  /// A pooled event, or null.
  [[nodiscard]] cudaEvent_t take_event() noexcept {
    const std::lock_guard hold(mutex_);
    if (events_.empty()) return nullptr;
    cudaEvent_t event = events_.back();
    events_.pop_back();
    return event;
  }
  /// False if the pool is full: the caller destroys it.
  [[nodiscard]] bool keep_event(cudaEvent_t event, std::uint32_t made_in) noexcept {
    const std::lock_guard hold(mutex_);
    if (made_in != generation() || events_.size() == most_events) return false;
    try {
      events_.push_back(event);
    } catch (...) {
      return false;
    }
    return true;
  }

  /// Counts losses and resets of all devices, so that a poller sees with one load that there is
  /// something to look for.
  [[nodiscard]] static std::atomic<std::uint32_t>& changes() noexcept {
    static constinit std::atomic<std::uint32_t> count{0};
    return count;
  }

 private:
  friend void forget_devices() noexcept;
  static constexpr std::size_t most_events = 4096;

  std::atomic<int> lost_{cudaSuccess};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint64_t> no_frees_in_{0};  // that generation plus one, or 0
  std::atomic<int> launchers_{0};
  std::atomic<int> lent_{0};
  std::mutex mutex_;
  std::vector<cudaEvent_t> events_;  // without timing, unused
};

namespace detail {

inline constexpr int most_devices = 64;

struct process_devices {
  std::array<device_state, most_devices> all;
  /// The driver has no cudaMemcpyBatchAsync.
  std::atomic<bool> batches_refused{false};
  std::mutex mutex;     // of what follows
  int chosen = -1;      // by set_default()
  int fixed = -1;       // the default device, once somebody has used it
  int local_rank = -1;  // as an upper layer knows it
};

/// Never destroyed: streams and vectors may be static objects.
inline process_devices& devices() {
  static process_devices& instance = *new process_devices;
  return instance;
}

}  // namespace detail

/// Throws error(errc::invalid_argument) for a number that no device can have.
[[nodiscard]] inline device_state& state_of(int device) {
  if (device < 0 || device >= detail::most_devices) {
    throw error(errc::invalid_argument, "there is no device " + std::to_string(device));
  }
  return detail::devices().all[static_cast<std::size_t>(device)];
}

/// Forgets losses, pools, the default device and what the driver lacks: for tests that begin anew
/// on other devices.
inline void forget_devices() noexcept {
  auto& process = detail::devices();
  const std::lock_guard hold(process.mutex);
  process.chosen = process.fixed = process.local_rank = -1;
  process.batches_refused.store(false);
  for (device_state& one : process.all) {
    one.context_gone(one.generation());
    one.lost_.store(cudaSuccess, std::memory_order_release);
  }
}

/// The category of codes that CUDA returned; its name is "cuda".
const std::error_category& cuda_category() noexcept;

/// The code of a return value; no error for `cudaSuccess`. The three ways in which CUDA says that
/// there is nothing to work with (a stub library, a driver that is too old, no device) are
/// `errc::no_device`.
[[nodiscard]] std::error_code make_error(cudaError_t code) noexcept;

/// Whether CUDA says that there is no device, or no driver for it.
[[nodiscard]] constexpr bool is_no_device(cudaError_t code) noexcept;

/// Whether the device's context is broken for good: from then on every call answers that, and only
/// a new process helps.
[[nodiscard]] constexpr bool is_sticky(cudaError_t code) noexcept;

/// Whether the runtime is being unloaded, or somebody has reset the device: what was made before
/// has gone and is not to be destroyed. That is no fault in a destructor.
[[nodiscard]] constexpr bool is_gone(cudaError_t code) noexcept;

/// Throws std::system_error with the code and the name of the call unless it succeeded; what CUDA
/// remembers as its last error is then cleared. A sticky error makes the device lost.
void check(cudaError_t code, const char* call, int device);

/// Throws the sticky error of a device that is lost.
void check_usable(int device);

namespace detail {

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "cuda"; }

  [[nodiscard]] std::string message(int value) const override {
    const auto code = static_cast<cudaError_t>(value);
    std::string text = cudaGetErrorName(code);
    return text.append(": ").append(cudaGetErrorString(code));
  }

  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    switch (value) {
      case cudaErrorMemoryAllocation:
        return std::errc::not_enough_memory;
      case cudaErrorInvalidValue:
      case cudaErrorInvalidDevice:
        return std::errc::invalid_argument;
      case cudaErrorNotSupported:
        return std::errc::not_supported;
      default:
        return {value, *this};
    }
  }
};

/// Notes what `code`, returned by a call on what was made in `generation`, says about the device.
inline void note(cudaError_t code, int device, std::uint32_t generation) {
  if (is_sticky(code)) state_of(device).lose(code);
  if (is_gone(code)) state_of(device).context_gone(generation);
}

[[noreturn]] inline void throw_error(cudaError_t code, const char* call) {
  static_cast<void>(cudaGetLastError());  // reported here, so a later look must not find it
  const std::error_code error = make_error(code);
  std::string text = call;
  // The text of no_device hides which of the three it is.
  if (is_no_device(code)) text.append(": ").append(cuda_category().message(code));
  if (error.category() == cohort_category()) throw cohort::error(error, text);
  throw std::system_error(error, text);
}

/// The same for a call that names no device: its code is about the current one, which it may have
/// lost.
[[noreturn]] inline void throw_error_of_current(cudaError_t code, const char* call) {
  int device = -1;
  if (is_sticky(code) && cudaGetDevice(&device) == cudaSuccess && device >= 0 &&
      device < most_devices) {
    state_of(device).lose(code);
  }
  throw_error(code, call);
}

}  // namespace detail

inline const std::error_category& cuda_category() noexcept {
  static const detail::category& instance = *new detail::category;
  return instance;
}

constexpr bool is_no_device(cudaError_t code) noexcept {
  return code == cudaErrorStubLibrary || code == cudaErrorInsufficientDriver ||
         code == cudaErrorNoDevice;
}

// By number where an older toolkit has no name for it: the driver may be newer. These are the codes
// of which the headers say that the process must be ended, and uncorrectable faults of the
// hardware. They do not say so of 999, the unknown error.
constexpr bool is_sticky(cudaError_t code) noexcept {
  switch (static_cast<int>(code)) {
    case 214:  // an uncorrectable ECC error
    case 220:  // an uncorrectable NVLink error
    case 226:  // a contained error
    case 700:  // an illegal address
    case 702:  // a kernel took too long
    case 710:  // an assertion in a kernel
    case 714:  // the hardware's stack
    case 715:  // an illegal instruction
    case 716:  // a misaligned address
    case 717:  // an address of another space
    case 718:  // an invalid program counter
    case 719:  // a launch failed
    case 721:  // a leak of tensor memory
    case 810:  // the client of the multi-process service was ended
    case 911:  // a fault outside the device
      return true;
    default:
      return false;
  }
}

constexpr bool is_gone(cudaError_t code) noexcept {
  return code == cudaErrorCudartUnloading || code == cudaErrorDeviceUninitialized ||
         code == cudaErrorContextIsDestroyed;
}

inline std::error_code make_error(cudaError_t code) noexcept {
  if (is_no_device(code)) return errc::no_device;
  return {static_cast<int>(code), cuda_category()};
}

inline void check(cudaError_t code, const char* call, int device) {
  if (code == cudaSuccess) [[likely]]
    return;
  detail::note(code, device, state_of(device).generation());
  detail::throw_error(code, call);
}

inline void check_usable(int device) {
  const cudaError_t why = state_of(device).lost();
  if (why != cudaSuccess) [[unlikely]]
    detail::throw_error(why, "the device is lost since an earlier call");
}

}  // namespace cohort::device

#endif
