// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of cluster/workers.hpp.

#include <cohort/cluster/manager.hpp>
#include <cohort/cluster/workers.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace cohort::cluster {

template <class Any>
asio::awaitable<workers> launch(asio::io_context& io, launch_options options) {
  const auto over = std::make_shared<manager>(io, std::move(options));
  workers made(over);
  auto starting = over->launch();
  co_await std::move(starting);
  co_return made;
}

template <class Any>
asio::awaitable<workers> adopt(communicator world, adopt_options options) {
  const auto over = std::make_shared<manager>(world.get_executor().context(),
                                              options.for_ranks(world.size() - 1));
  workers made(over);
  auto adopting = over->adopt(std::move(world));
  co_await std::move(adopting);
  co_return made;
}

}  // namespace cohort::cluster
