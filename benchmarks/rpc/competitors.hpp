// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The competitors of this benchmark. Each makes one chunk of round trips, one after the other, and
/// returns the nanoseconds of each.

#include <cohort/cluster/workers.hpp>

#include <asio/ip/tcp.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace raw_asio {

/// Echoes messages of that size to the one client that comes, until it leaves. Returns the port.
std::uint16_t serve(asio::io_context& io, std::size_t size);
asio::awaitable<asio::ip::tcp::socket> connect(std::uint16_t port);
/// There and back.
asio::awaitable<std::vector<double>> round_trips(asio::ip::tcp::socket& socket,
                                                 std::vector<std::byte>& message, int rounds);

}  // namespace raw_asio

namespace raw_mpi {

/// Blocking MPI_Send and MPI_Recv of 8 B between ranks 0 and 1 of MPI_COMM_WORLD.
std::vector<double> ask(int rounds);
void answer(int rounds);

}  // namespace raw_mpi

namespace with_cohort {

using cohort::cluster::workers;

/// The bytes that an empty call takes on its way.
inline constexpr std::size_t empty_call =
    cohort::cluster::frame_head_size + cohort::cluster::call_tail::size;

/// Has the worker start raw_asio's server on its own loop, and connects.
asio::awaitable<asio::ip::tcp::socket> connect_raw(workers all, std::size_t size);

/// A function without arguments and result; the same as a coroutine.
asio::awaitable<std::vector<double>> calls(workers all, int rounds);
asio::awaitable<std::vector<double>> coroutine_calls(workers all, int rounds);
/// A vector as argument, which the caller keeps, and another one with its bytes as result.
asio::awaitable<std::vector<double>> echoes(workers all, const std::vector<std::byte>& message,
                                            int rounds);
/// The caller gives the vector away, and goes on with the result.
asio::awaitable<std::vector<double>> moved_echoes(workers all, std::vector<std::byte>& message,
                                                  int rounds);

/// raw_mpi, whose other side the worker runs.
asio::awaitable<std::vector<double>> raw_ping_pong(workers all, int rounds);

/// The share of a core that the manager and then each worker take while nothing happens.
asio::awaitable<std::vector<double>> idle(workers all, std::chrono::seconds time);

}  // namespace with_cohort
