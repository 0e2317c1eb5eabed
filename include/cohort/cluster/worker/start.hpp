// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a process must know to become a worker, and where a launched one finds it.

#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/core/error.hpp>

#include <asio/ip/tcp.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::cluster {

namespace detail {

/// The rank that the launcher has put into the environment; -1 if it is not known.
inline int rank_in_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const text = std::getenv(name);
    if (text != nullptr) return std::atoi(text);
  }
  return -1;
}

}  // namespace detail

/// How a worker reaches its manager.
struct worker_start {
  launch_token token{};
  std::vector<asio::ip::tcp::endpoint> managers;
  std::shared_ptr<link> control;  ///< over MPI; null: one is opened over TCP
  bool capture = true;            ///< stdout and stderr go to the manager
  bool adopted = false;           ///< this process was not started for the manager

  /// Takes it out of the environment, so that no child of this process has it. Nothing if it is
  /// not there; throws errc::invalid_argument if it makes no sense.
  template <class Any = void>
  [[nodiscard]] static std::optional<worker_start> take_from_environment() {
    const char* const token = std::getenv(token_variable);
    const char* const managers = std::getenv(manager_variable);
    if (token == nullptr || managers == nullptr) return std::nullopt;
    const std::string where = managers;
    const std::string secret = token;
    ::unsetenv(token_variable);
    ::unsetenv(manager_variable);
    return from_texts(where, secret, std::string(token_variable) + ", " + manager_variable + ": ");
  }
  /// `whose` begins the text of the error.
  template <class Any = void>
  [[nodiscard]] static worker_start from_texts(std::string_view endpoints, std::string_view token,
                                               const std::string& whose) {
    worker_start start;
    if (!parse_token(token, start.token)) {
      throw error(errc::invalid_argument,
                  whose + "the token is none: it has 32 hexadecimal digits");
    }
    start.managers = parse_endpoints(endpoints);
    if (start.managers.empty()) {
      throw error(errc::invalid_argument,
                  whose + "no address in \"" + std::string(endpoints) + "\"");
    }
    return start;
  }
};

}  // namespace cohort::cluster
