// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Which device: how many there are, the one that is current, the default of the process, and what
/// tells a device apart from all others.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/error.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace cohort::device {

/// How many devices the process sees; 0 where there is none, no driver, or one that is too old.
[[nodiscard]] int count();

/// The current device of this thread, as CUDA has it. Throws error(errc::no_device).
[[nodiscard]] int current();

/// Chooses the default device of the process. Throws error(errc::invalid_argument) if there is no
/// such device, or if another one has been used as the default already.
void set_default(int device);

/// For upper layers that know it from MPI: which rank of its node this process is.
void set_local_rank(int rank);

/// The device that streams and vectors take if none is named: set_default(), else the rank on this
/// node modulo count(). The first call fixes it. Throws error(errc::no_device), saying why.
///
/// The rank on the node is set_local_rank(), else what the launcher has left in the environment
/// (Open MPI, MPICH, PALS, Slurm, Flux), else 0.
[[nodiscard]] int default_device();

/// Makes a device current on this thread while it lives, and then the one that was. Every call of
/// the library does this. It costs two calls into CUDA only where the device is another one.
///
/// CUDA makes a context on a device that becomes current, also when one is restored. So a program
/// with a device per rank does well to call `cudaSetDevice` with its own before anything else.
class scoped_device {
 public:
  explicit scoped_device(int device);
  ~scoped_device();
  scoped_device(const scoped_device&) = delete;
  scoped_device& operator=(const scoped_device&) = delete;

 private:
  int before_;
  bool changed_;
};

namespace detail {

[[nodiscard]] inline cudaError_t count_into(int& number) noexcept {
  number = 0;
  const cudaError_t code = cudaGetDeviceCount(&number);
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    number = 0;
  }
  return code;
}

inline int local_rank_from_environment() noexcept {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID",
                           "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const char* end = text + std::strlen(text);
    int rank = 0;
    const auto [stop, bad] = std::from_chars(text, end, rank);
    if (bad == std::errc() && stop == end && rank >= 0) return rank;
  }
  return 0;
}

}  // namespace detail

inline int count() {
  int number = 0;
  const cudaError_t code = detail::count_into(number);
  if (code != cudaSuccess && !is_no_device(code)) {
    detail::throw_error_of_current(code, "cudaGetDeviceCount");
  }
  return number;
}

inline int current() {
  int device = 0;
  const cudaError_t code = cudaGetDevice(&device);
  if (code != cudaSuccess) detail::throw_error_of_current(code, "cudaGetDevice");
  return device;
}

inline void set_default(int device) {
  if (device < 0 || device >= count()) {
    throw error(errc::invalid_argument, "set_default: there is no device " +
                                            std::to_string(device) + ", but " +
                                            std::to_string(count()));
  }
  auto& process = detail::devices();
  const std::lock_guard hold(process.mutex);
  if (process.fixed >= 0 && process.fixed != device) {
    throw error(errc::invalid_argument, "set_default: device " + std::to_string(process.fixed) +
                                            " is in use as the default already");
  }
  process.chosen = device;
}

inline void set_local_rank(int rank) {
  auto& process = detail::devices();
  const std::lock_guard hold(process.mutex);
  process.local_rank = rank;
}

inline int default_device() {
  auto& process = detail::devices();
  const std::lock_guard hold(process.mutex);
  if (process.fixed >= 0) return process.fixed;
  int number = 0;
  const cudaError_t code = detail::count_into(number);
  if (code != cudaSuccess) detail::throw_error_of_current(code, "cudaGetDeviceCount");
  if (number == 0) throw error(errc::no_device, "the process sees no device");
  const int rank =
      process.local_rank >= 0 ? process.local_rank : detail::local_rank_from_environment();
  process.fixed = process.chosen >= 0 ? process.chosen : rank % number;
  return process.fixed;
}

inline scoped_device::scoped_device(int device) : before_(current()), changed_(before_ != device) {
  if (changed_) check(cudaSetDevice(device), "cudaSetDevice", device);
}

inline scoped_device::~scoped_device() {
  if (changed_ && cudaSetDevice(before_) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

/// 16 bytes. All are 0 where CUDA knows none.
struct device_uuid {
  std::array<unsigned char, 16> bytes{};

  [[nodiscard]] bool known() const noexcept { return *this != device_uuid(); }
  /// Groups of hexadecimal digits, as nvidia-smi prints them after "GPU-" or "MIG-".
  [[nodiscard]] std::string text() const;
  friend bool operator==(const device_uuid&, const device_uuid&) = default;
};

/// That of a device, as CUDA's runtime gives it: parts of one GPU (MIG) are devices with a UUID
/// each, although they have one bus id. *Cost*: CUDA collects all properties of the device, so it
/// is for making things. *Errors*: error(errc::invalid_argument) for a number that no device can
/// have, error(errc::no_device), CUDA's codes.
[[nodiscard]] device_uuid uuid(int device);

inline std::string device_uuid::text() const {
  constexpr const char* digits = "0123456789abcdef";
  std::string made;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) made += '-';
    made += digits[bytes[i] >> 4U];
    made += digits[bytes[i] & 15U];
  }
  return made;
}

inline device_uuid uuid(int device) {
  check_usable(device);
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties", device);
  device_uuid made;
  static_assert(sizeof found.uuid == sizeof made.bytes);
  std::memcpy(made.bytes.data(), &found.uuid, sizeof found.uuid);
  return made;
}

}  // namespace cohort::device

#endif
