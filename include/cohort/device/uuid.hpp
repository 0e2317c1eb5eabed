// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What tells a device apart from all others, in whichever process and container it is seen.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/error.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace cohort::device {

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
