// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The options of a communicator that must be equal on all ranks, as numbers with names.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/state.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::nccl::detail {

/// A place for each, whichever versions of NCCL's header the ranks were compiled with.
inline constexpr std::array<const char*, 16> config_names = {
    "on_deadline",
    "config.cgaClusterSize",
    "config.minCTAs",
    "config.maxCTAs",
    "config.netName",
    "config.splitShare",
    "config.trafficClass",
    "config.collnetEnable",
    "config.CTAPolicy",
    "config.shrinkShare",
    "config.nChannelsPerNetPeer",
    "config.nvlinkCentricSched",
    "config.graphUsageMode",
    "config.numRmaCtx",
    "config.maxP2pPeers",
    "config.graphStreamOrdering",
};
using config_values = std::array<std::int32_t, config_names.size()>;

/// A number for a text, the same in all processes.
inline std::int32_t number_of(const char* text) noexcept {
  if (text == nullptr) return NCCL_CONFIG_UNDEF_INT;
  std::uint32_t hash = 2166136261U;
  for (const char c : std::string_view(text)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return static_cast<std::int32_t>(hash >> 1U);
}

/// What came with 2.29 and 2.30, where the header has it: releases in between have some of it.
template <class Config>
void add_newer_fields(const Config& config, config_values& made) {
  if constexpr (requires { config.graphUsageMode; }) made[12] = config.graphUsageMode;
  if constexpr (requires { config.numRmaCtx; }) made[13] = config.numRmaCtx;
  if constexpr (requires { config.maxP2pPeers; }) made[14] = config.maxP2pPeers;
  if constexpr (requires { config.graphStreamOrdering; }) made[15] = config.graphStreamOrdering;
}

/// Whether a communicator may be captured beside plain operations, as a coordinator's is: the mode
/// 2, and the default, where NCCL has modes.
template <class Config>
[[nodiscard]] bool allows_graphs([[maybe_unused]] const Config& config) {
  if constexpr (requires { config.graphUsageMode; }) {
    return config.graphUsageMode == NCCL_CONFIG_UNDEF_INT || config.graphUsageMode == 2;
  } else {
    return true;
  }
}

/// Not `blocking`, which is always 0, nor `commName` and `nvlsCTAs`, which each rank may choose.
inline config_values config_of(const communicator_options& options) {
  const ncclConfig_t& config = options.config;
  config_values made{};
  made.fill(NCCL_CONFIG_UNDEF_INT);
  made[0] = static_cast<std::int32_t>(options.on_deadline);
  made[1] = config.cgaClusterSize;
  made[2] = config.minCTAs;
  made[3] = config.maxCTAs;
  made[4] = number_of(config.netName);
  made[5] = config.splitShare;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 2)
  made[6] = config.trafficClass;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  made[7] = config.collnetEnable;
  made[8] = config.CTAPolicy;
  made[9] = config.shrinkShare;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
  made[10] = config.nChannelsPerNetPeer;
  made[11] = config.nvlinkCentricSched;
#endif
  add_newer_fields(config, made);
  return made;
}

inline std::string in_words(std::int32_t config_value) {
  return config_value == NCCL_CONFIG_UNDEF_INT ? "none" : std::to_string(config_value);
}

}  // namespace cohort::nccl::detail

#endif
