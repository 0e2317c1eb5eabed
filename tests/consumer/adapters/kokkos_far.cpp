// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A view whose memory the host cannot use: must not compile, and say why.
#include <cohort/adapters/kokkos.hpp>
#include <cohort/collectives.hpp>

#include <cstddef>

struct far_memory {
  using memory_space = far_memory;
  using execution_space = Kokkos::Serial;
  using device_type = Kokkos::Device<execution_space, far_memory>;
  using size_type = std::size_t;
};
using far_view = Kokkos::View<double*, far_memory, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

asio::awaitable<void> sum(cohort::communicator world, far_view& view) {
  co_await cohort::all_reduce(world, view, cohort::op::sum);
}

int main() { return 0; }
