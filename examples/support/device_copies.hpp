// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Whole vectors to device memory and back, and what all ranks must have alike.

#include <cohort/device.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace support {

namespace device = cohort::device;

/// Queues the copy. Its memory on the host stays in a pool until it is over.
template <class T>
device::vector<T> to_device(const std::vector<T>& from, const device::stream& on) {
  device::pinned_vector<T> staged(from.size(), on);
  std::copy(from.begin(), from.end(), staged.begin());
  device::vector<T> made(from.size(), on);
  device::copy(on, staged, made);
  return made;
}

template <class T>
asio::awaitable<std::vector<T>> to_host(const device::vector<T>& from, const device::stream& on) {
  device::pinned_vector<T> staged(from.size(), on);
  device::copy(on, from, staged);
  co_await device::done(on);
  co_return std::vector<T>(staged.begin(), staged.end());
}

/// Goes on with `sum`: FNV-1a.
template <class T>
std::uint64_t checksum(const std::vector<T>& of, std::uint64_t sum) {
  for (const std::byte one : std::as_bytes(std::span(of)))
    sum = (sum ^ std::to_integer<std::uint64_t>(one)) * 1099511628211U;
  return sum;
}

}  // namespace support
