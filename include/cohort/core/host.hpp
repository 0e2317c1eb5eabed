// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Which machine this process runs on.

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace cohort::process {

/// The same for processes of one machine and container, and for no others: a hash of the boot id,
/// which tells machines of one name apart, and of the host's name, which tells containers apart.
/// Reads a file; ask once.
inline std::uint64_t host_id() {
  std::array<char, 256> name{};
  std::string text;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    text.assign(name.data(), std::fread(name.data(), 1, name.size(), file));
    std::fclose(file);
    name = {};
  }
  if (::gethostname(name.data(), name.size() - 1) == 0) text += name.data();
  std::uint64_t hash = 1469598103934665603U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

/// The machine's name; "?" if it has none.
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace cohort::process
