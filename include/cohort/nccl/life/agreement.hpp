// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What ranks tell each other before they make a communicator and after it: what must be equal on
/// all of them, what each has, and how it went.
///
/// The room `life` has what communicators go through. The ranks of one enter it, and failures of
/// devices and peers; communicators leave it, and what has become of them and their operations.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/joint.hpp>
#include <cohort/device/device.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/progress/look_task.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// What a rank tells the others before NCCL's init.
struct facts {
  std::int32_t error;     // errc, or 0
  std::int32_t version;   // of the library
  std::int32_t borrowed;  // 1
  std::int32_t device;
  config_values config;
  std::array<char, 64> host;
  std::array<char, 32> bus;
  device::device_uuid uuid;
  std::array<char, 160> text;  // of the error
};

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  to.fill('\0');
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}
template <std::size_t N>
std::string get(const std::array<char, N>& from) {
  return {from.begin(), std::find(from.begin(), from.end(), '\0')};
}

/// Of this rank. Throws nothing: what is wrong is a fact too.
inline facts look_around(communicator_state& comm) {
  facts mine{};
  mine.version = library_version();
  mine.borrowed = comm.borrowed ? 1 : 0;
  mine.device = comm.device;
  mine.config = config_of(comm.options);
  std::array<char, 64> host{};
  static_cast<void>(::gethostname(host.data(), host.size() - 1));
  mine.host = host;
  try {
    if (comm.source.is_ending()) throw cohort::error(errc::engine_stopped, "its loop has ended");
    if (comm.device < 0) static_cast<void>(device::default_device());
    device::check_usable(comm.device);
    if (comm.device >= device::count()) {
      throw cohort::error(errc::no_device, "there is no device " + std::to_string(comm.device));
    }
    comm.source.claim(comm.device);
    if (comm.orderer != nullptr && comm.source.is_held_elsewhere(comm.device, comm.orderer)) {
      throw cohort::error(errc::not_supported,
                          "device " + std::to_string(comm.device) +
                              ": a coordinator has another device of this process");
    }
    // A coordinator's predecessor may have had the device when this one was made.
    const bool admitted = comm.orderer == nullptr ? comm.source.admits(comm.device, nullptr)
                                                  : comm.source.hold(comm.device, comm.orderer);
    if (!admitted) {
      throw cohort::error(errc::device_ordered, "device " + std::to_string(comm.device));
    }
    if (device::state_of(comm.device).is_lent()) {
      throw cohort::error(errc::device_ordered,
                          "MPI works on memory of device " + std::to_string(comm.device));
    }
    device::check(
        cudaDeviceGetPCIBusId(mine.bus.data(), static_cast<int>(mine.bus.size()), comm.device),
        "cudaDeviceGetPCIBusId", comm.device);
    mine.uuid = device::uuid(comm.device);
  } catch (const std::system_error& failed) {
    const bool known = failed.code().category() == cohort_category();
    mine.error = known ? failed.code().value() : static_cast<std::int32_t>(errc::no_device);
    put(mine.text, failed.what());
  }
  return mine;
}

/// By UUID, for parts of a GPU (MIG) share its bus id and containers may share a host name; by
/// these two where there is none.
inline bool same_device(const facts& one, const facts& other) {
  if (one.uuid.known() && other.uuid.known()) return one.uuid == other.uuid;
  return one.host == other.host && one.bus == other.bus;
}

/// The same on all ranks: throws if they cannot make a communicator together.
inline void judge(const std::vector<facts>& all, bool borrowed) {
  std::vector<int> bad;
  std::string text;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].error == 0) continue;
    bad.push_back(static_cast<int>(rank));
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) + " on " +
            get(all[rank].host) + ": " + get(all[rank].text);
  }
  if (!bad.empty()) {
    const auto code = static_cast<errc>(all[static_cast<std::size_t>(bad.front())].error);
    throw rank_error(code, bad, "no NCCL communicator can be made: " + text);
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto differs = [&](const char* field, const std::string& here, const std::string& there) {
      throw mismatch_error(field, {0, static_cast<int>(rank)},
                           std::string("no NCCL communicator can be made: ") + field +
                               ": rank 0 has " + there + ", rank " + std::to_string(rank) +
                               " has " + here);
    };
    if (all[rank].version != all[0].version) {
      differs("NCCL version", std::to_string(all[rank].version), std::to_string(all[0].version));
    }
    if (all[rank].borrowed != all[0].borrowed) differs("borrowed", "another", "one");
    for (std::size_t i = 0; i < config_names.size(); ++i) {
      const std::int32_t here = all[rank].config[i];
      const std::int32_t there = all[0].config[i];
      if (here != there) differs(config_names[i], in_words(here), in_words(there));
    }
    if (borrowed) continue;
    for (std::size_t before = 0; before < rank; ++before) {
      if (!same_device(all[rank], all[before])) continue;
      throw rank_error(errc::wrong_device, {static_cast<int>(before), static_cast<int>(rank)},
                       "no NCCL communicator can be made: ranks " + std::to_string(before) +
                           " and " + std::to_string(rank) + " have the same device " +
                           get(all[rank].bus) + " on " + get(all[rank].host) + ", with the UUID " +
                           all[rank].uuid.text());
    }
  }
}

/// What a rank tells of itself that has no memory to look around.
inline facts without_memory() {
  facts mine{};
  mine.error = static_cast<std::int32_t>(errc::aborted);
  static_cast<void>(::gethostname(mine.host.data(), mine.host.size() - 1));
  put(mine.text, "no memory");
  return mine;
}

/// How init went on a rank.
struct init_result {
  std::int32_t failed;
  std::int32_t code;  // NCCL's, if it is one
  std::array<char, 128> text;
};

/// What it throws, as a value.
inline progress::look_task<problem> caught(progress::look_task<> work) {
  std::exception_ptr why;
  try {
    co_await work;
  } catch (...) {
    why = std::current_exception();
  }
  co_return problem_of(why);
}

/// What the ranks say of themselves; all throw the same if one has failed.
inline progress::look_task<> agree(cohort::communicator over, problem mine_is, const char* what) {
  std::vector<init_result> each(static_cast<std::size_t>(over.size()));
  init_result mine{mine_is.code ? 1 : 0, 0, {}};
  put(mine.text, mine_is.text);
  auto gathered = comm::joint::all_gather(over, mine, each);
  co_await gathered;
  std::vector<int> ranks;
  std::string text;
  for (int rank = 0; rank < over.size(); ++rank) {
    const init_result& one = each[static_cast<std::size_t>(rank)];
    if (one.failed == 0) continue;
    ranks.push_back(rank);
    text += (text.empty() ? std::string(what) + ": rank " : "; rank ") + std::to_string(rank) +
            ": " + get(one.text);
  }
  if (!ranks.empty()) throw rank_error(errc::aborted, ranks, text);
}

}  // namespace cohort::nccl::detail

#endif
