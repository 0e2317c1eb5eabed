// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// An ordered queue of work on a device, owned or borrowed, and a mark in it, from a pool of events
/// without timing. Streams order work on a device without a host that waits; `device::done` is for
/// a coroutine that does.
///
/// \code
/// cohort::device::stream compute;                         // on the default device
/// const cohort::device::stream copies(compute.device());
/// // ... launch kernels on compute.get() ...
/// const cohort::device::event here = compute.record();    // behind these kernels
/// copies.wait(here);                                      // the device waits, not the host
/// if (!here.is_ready()) co_await cohort::device::done(compute);
/// \endcode

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/device.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace cohort::device {

namespace detail {

/// While it lives, this thread may ask for events although somebody captures a graph in the mode
/// that forbids it to all threads.
class relaxed_capture {
 public:
  relaxed_capture() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~relaxed_capture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// What owns a CUDA event: a move takes it along.
class event_handle {
 public:
  [[nodiscard]] bool valid() const noexcept { return native_ != nullptr; }

 protected:
  event_handle() noexcept {}
  explicit event_handle(int device) noexcept : device_(device) {}
  event_handle(event_handle&& other) noexcept
      : native_(std::exchange(other.native_, nullptr)),
        device_(other.device_),
        generation_(other.generation_) {}
  event_handle& operator=(event_handle&& other) noexcept {
    std::swap(native_, other.native_);
    std::swap(device_, other.device_);
    std::swap(generation_, other.generation_);
    return *this;
  }
  ~event_handle() = default;

  cudaEvent_t native_ = nullptr;
  int device_ = -1;
  std::uint32_t generation_ = 0;  // of the context that it belongs to, see device_state
};

}  // namespace detail

/// Tells whether the work that was in a stream when it was recorded (`stream::record()`) is done.
/// Owns a CUDA event of the process' pool, so making one costs a list pop after warm-up. Dropping
/// it in flight is fine. Not for timing, and not for other processes.
class event : public detail::event_handle {
 public:
  /// Of nothing.
  event() noexcept {}
  /// Not yet recorded. Throws std::system_error if CUDA makes none.
  explicit event(int device);
  event(event&& other) noexcept = default;
  event& operator=(event&& other) noexcept = default;
  ~event();

  [[nodiscard]] cudaEvent_t get() const noexcept { return native_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }

  /// One that does not come from the pool, so it belongs to the present context of the device.
  [[nodiscard]] static event fresh(int device);

  /// Asks CUDA, without waiting: `cudaSuccess`, `cudaErrorNotReady`, or what went wrong. Leaves no
  /// last error behind. To be called in a scope of detail::relaxed_capture.
  [[nodiscard]] cudaError_t query() const noexcept;
  /// The same, but throws what went wrong. May be called while others capture graphs.
  [[nodiscard]] bool is_ready() const;
};

inline event event::fresh(int device) {
  event made;
  made.device_ = device;
  made.generation_ = state_of(device).generation();
  const scoped_device on(device);
  const detail::relaxed_capture may_make;
  check(cudaEventCreateWithFlags(&made.native_, cudaEventDisableTiming), "cudaEventCreateWithFlags",
        device);
  return made;
}

inline event::event(int device) : event_handle(device) {
  device_state& state = state_of(device);
  check_usable(device);
  generation_ = state.generation();
  native_ = state.take_event();
  if (native_ == nullptr) *this = fresh(device);
}

inline event::~event() {
  if (native_ == nullptr) return;
  device_state& state = state_of(device_);
  if (!state.may_free(generation_) || state.keep_event(native_, generation_)) return;
  if (cudaEventDestroy(native_) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

inline cudaError_t event::query() const noexcept {
  const cudaError_t code = cudaEventQuery(native_);
  // CUDA remembers "not ready" as its last error, which the user's next look must not find.
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code;
}

inline bool event::is_ready() const {
  const detail::relaxed_capture may_ask;
  const cudaError_t code = query();
  if (code == cudaErrorNotReady) return false;
  check(code, "cudaEventQuery", device_);
  return true;
}

struct stream_options {
  int device = -1;             ///< -1: default_device()
  bool high_priority = false;  ///< the highest that the device has
};

/// A handle of a CUDA stream. Copies share the stream; an owned one is destroyed with its last
/// handle, which waits for nothing: CUDA finishes what is queued.
///
/// Owned streams are non-blocking ones: they do not order themselves with the legacy default
/// stream. *Threads*: as with CUDA's own, any thread may use it.
class stream {
 public:
  /// On the default device of the process.
  stream() : stream(stream_options{}) {}
  explicit stream(int device) : stream(stream_options{.device = device}) {}
  /// Throws error(errc::no_device), or std::system_error with CUDA's code.
  explicit stream(const stream_options& options);

  /// A stream that somebody else made, and destroys after the last handle and all that was awaited
  /// on it. `device` is needed with toolkits or drivers before 12.8 only, where CUDA cannot tell;
  /// -1 means the current device there. Null is the default stream of the current device. Throws
  /// error(errc::wrong_device) if CUDA says that it is on another device than `device`.
  [[nodiscard]] static stream borrow(cudaStream_t native, int device = -1);

  [[nodiscard]] cudaStream_t get() const noexcept { return shared_->native; }
  [[nodiscard]] int device() const noexcept { return shared_->device; }
  [[nodiscard]] bool is_owned() const noexcept { return shared_->owned; }
  friend bool operator==(const stream& a, const stream& b) noexcept {
    return a.get() == b.get() && a.device() == b.device();
  }

  /// Marks what is queued now. Throws error(errc::not_supported) while the stream is captured.
  [[nodiscard]] event record() const;
  /// Lets what is queued from now on wait until `mark` has been reached. No host waits.
  void wait(const event& mark) const;
  /// The same, but false where the stream is being captured: waiting for what is outside would
  /// spoil that.
  [[nodiscard]] bool try_wait(const event& mark) const;
  /// Lets what is queued from now on wait for what `other` has queued so far.
  void wait(const stream& other) const {
    if (*this != other) wait(other.record());
  }

  /// Whether its device is as it was when the stream was made: not lost, and not reset since.
  [[nodiscard]] bool is_alive() const noexcept {
    return state_of(device()).holds(shared_->generation);
  }
  /// Whether a graph is being captured from it.
  [[nodiscard]] bool is_capturing() const;

 private:
  struct shared_stream {
    shared_stream(int on, bool own) noexcept : device(on), owned(own) {}
    shared_stream(const shared_stream&) = delete;
    ~shared_stream();
    cudaStream_t native = nullptr;
    int device;
    bool owned;
    std::uint32_t generation = 0;
  };
  explicit stream(std::shared_ptr<const shared_stream> shared) noexcept
      : shared_(std::move(shared)) {}
  void check_alive() const;

  std::shared_ptr<const shared_stream> shared_;
};

namespace detail {

/// The handles that mean another stream on each device, or in each thread.
inline bool is_default_stream(cudaStream_t native) noexcept {
  return native == nullptr || native == cudaStreamLegacy || native == cudaStreamPerThread;
}

/// Null means one of two streams; a macro of the file that uses it says which.
inline cudaStream_t by_name(cudaStream_t native) noexcept {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
  return native == nullptr ? cudaStreamPerThread : native;
#else
  return native == nullptr ? cudaStreamLegacy : native;
#endif
}

}  // namespace detail

inline stream::stream(const stream_options& options) {
  const int device = options.device < 0 ? default_device() : options.device;
  check_usable(device);
  const scoped_device on(device);
  auto made = std::make_shared<shared_stream>(device, true);
  int lowest = 0;
  int highest = 0;
  if (options.high_priority) {
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange",
          device);
  }
  check(cudaStreamCreateWithPriority(&made->native, cudaStreamNonBlocking, highest),
        "cudaStreamCreateWithPriority", device);
  made->generation = state_of(device).generation();
  shared_ = std::move(made);
}

inline stream stream::borrow(cudaStream_t native, int device) {
  native = detail::by_name(native);
  int where = device;
#if CUDART_VERSION >= 12080
  if (int found = -1; !detail::is_default_stream(native)) {
    if (cudaStreamGetDevice(native, &found) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // an older driver
    } else if (device >= 0 && found != device) {
      throw error(errc::wrong_device, "the stream is on device " + std::to_string(found) +
                                          ", not on " + std::to_string(device));
    } else {
      where = found;
    }
  }
#endif
  if (where < 0) where = current();
  check_usable(where);
  auto made = std::make_shared<shared_stream>(where, false);
  made->native = native;
  made->generation = state_of(where).generation();
  return stream(std::move(made));
}

/// The stream that a place of memory or an option names, without a type of CUDA's.
[[nodiscard]] inline stream named_stream(const void* name, int device) {
  return stream::borrow(static_cast<cudaStream_t>(const_cast<void*>(name)), device);
}

inline stream::shared_stream::~shared_stream() {
  if (!owned || native == nullptr || !state_of(device).may_free(generation)) return;
  const cudaError_t code = cudaStreamDestroy(native);
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  detail::note(code, device, generation);
}

inline bool stream::is_capturing() const {
  const scoped_device on(device());
  auto status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(get(), &status), "cudaStreamIsCapturing", device());
  return status != cudaStreamCaptureStatusNone;
}

inline void stream::check_alive() const {
  check_usable(device());
  if (shared_->generation != state_of(device()).generation()) [[unlikely]] {
    detail::throw_error(cudaErrorContextIsDestroyed, "the device was reset since");
  }
}

// An event of the pool is refused if its device was reset meanwhile, and any event if the stream is
// not what it is said to be. A fresh event tells the two apart.
inline event stream::record() const {
  check_alive();
  const scoped_device on(device());
  if (is_capturing()) throw error(errc::not_supported, "the stream is being captured");
  event mark(device());
  cudaError_t code = cudaEventRecord(mark.get(), get());
  if (code == cudaErrorInvalidResourceHandle) [[unlikely]] {
    static_cast<void>(cudaGetLastError());
    const event fresh = event::fresh(device());
    code = cudaEventRecord(fresh.get(), get());
    if (code == cudaSuccess) {
      state_of(device()).context_gone(mark.generation());
      mark = event(device());
      code = cudaEventRecord(mark.get(), get());
    }
  }
  check(code, "cudaEventRecord", device());
  return mark;
}

inline void stream::wait(const event& mark) const {
  check_alive();
  const scoped_device on(device());
  check(cudaStreamWaitEvent(get(), mark.get(), 0), "cudaStreamWaitEvent", device());
}

inline bool stream::try_wait(const event& mark) const {
  try {
    if (is_capturing()) return false;
    wait(mark);
  } catch (const std::system_error& failed) {
    const auto code = static_cast<cudaError_t>(failed.code().value());
    const bool captures =
        code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
    if (!captures || failed.code() != make_error(code)) throw;
    return false;
  }
  return true;
}

}  // namespace cohort::device

#endif
