// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Spawn sites as people read them.

#include <cohort/graph/machine/names.hpp>

#include <string>
#include <string_view>

namespace cohort::graph::machine {

/// Without its folders, as other ranks are told.
[[nodiscard]] inline std::string file_of(const spawn_site& site) {
  std::string_view file = site.file == nullptr ? std::string_view("?") : site.file;
  file.remove_prefix(file.rfind('/') + 1);  // all of it where there is none
  return std::string(file);
}
/// "cholesky.cpp:41".
[[nodiscard]] inline std::string site_of(const spawn_site& site) {
  return file_of(site) + ":" + std::to_string(site.line);
}

}  // namespace cohort::graph::machine
