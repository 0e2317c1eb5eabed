// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The memory, the streams and the kernels with which a backend packs and unpacks.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/log.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend/pack_moves.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/progress/look_task.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// Of one backend. Guarded by the lock of the issuing source.
class pack_memory {
 public:
  /// A buffer for packs. A pack may be laid there when the one before has been launched: then it is
  /// known which event ends that one's use.
  struct block {
    device::vector<std::byte> memory;
    std::optional<device::event> used;
    std::uint64_t given = 0;  // turns
    std::uint64_t over = 0;
    std::vector<std::uint64_t> later;  // turns that ended before some that were given earlier

    void end(std::uint64_t turn) {
      later.push_back(turn);
      while (std::erase(later, over) != 0) ++over;
    }
  };
  /// Pinned memory through which host code works on a stream's data, piece by piece.
  static constexpr std::size_t staging_bytes = std::size_t{1} << 18U;
  static constexpr std::size_t mpi_bytes = std::size_t{1} << 23U;  // the same, where MPI reduces

  [[nodiscard]] bool is_there() const noexcept { return packing.has_value(); }
  /// All but the blocks. On a thread, because that may wait for whatever the device does. Without
  /// the lock.
  [[nodiscard]] progress::look_task<> take(issue_source& source, int device,
                                           const backend_options& options, kernel_loader load);
  /// The block for the next pack, with its turn there.
  [[nodiscard]] std::pair<block*, std::uint64_t> next_block() {
    block& one = blocks_[static_cast<std::size_t>(packs_++ % blocks_.size())];
    return {&one, one.given++};
  }
  /// What `moves` has, through this memory. Without kernels host code does what NCCL cannot, and
  /// the first time this is told.
  void run_moves(const device::stream& on, device::pinned_vector<std::byte>& staging,
                 call_graph* graph);

  std::optional<device::stream> packing;
  std::optional<device::stream> unpacking;
  device::pinned_vector<std::byte> before;
  device::pinned_vector<std::byte> after;
  std::shared_ptr<device::pinned_vector<std::byte>> of_graphs;
  pack_moves moves;  // of one pack; empty between

 private:
  std::array<block, 2> blocks_;
  std::uint64_t packs_ = 0;
  std::shared_ptr<const move_kernels> kernels_;
  std::string no_kernels_;  // why, until that is told
};

namespace detail {

/// What is taken on the thread, which has a share of it: so nobody need wait for it.
struct blocking_job {
  device::pinned_vector<std::byte> before;
  device::pinned_vector<std::byte> after;
  std::shared_ptr<device::pinned_vector<std::byte>> of_graphs;
  std::shared_ptr<const move_kernels> kernels;
  std::exception_ptr failed;
  std::string no_kernels;  // why
  std::atomic<bool> done{false};

  /// Those of the process, or why there are none.
  void take_kernels(int device, const backend_options& options, kernel_loader load) {
    try {
      if (load == nullptr) throw cohort::error(errc::not_supported, "they are left out");
      kernels = load(device, options.nvrtc);
    } catch (const std::system_error& problem) {
      device::check_usable(device);
      no_kernels = problem.what();
      if (options.kernels != kernel_use::required) return;
      throw cohort::error(errc::not_supported, "kernels are required: " + no_kernels);
    }
  }
};

}  // namespace detail

inline progress::look_task<> pack_memory::take(issue_source& source, int device,
                                               const backend_options& options, kernel_loader load) {
  const device::stream_options as{.device = device, .high_priority = true};
  device::stream in(as);
  device::stream out(as);
  const device::stream domain = source.domain_of(device);  // where graphs run
  auto job = std::make_shared<detail::blocking_job>();
  const std::size_t after_bytes = options.uses_mpi() ? mpi_bytes : staging_bytes;
  std::thread([job, in, out, domain, after_bytes, options, load, device] {
    try {
      job->before = device::pinned_vector<std::byte>(staging_bytes, in);
      job->after = device::pinned_vector<std::byte>(after_bytes, out);
      job->of_graphs = std::make_shared<device::pinned_vector<std::byte>>(staging_bytes, domain);
      if (options.kernels != kernel_use::off) job->take_kernels(device, options, load);
    } catch (...) {
      job->failed = std::current_exception();
    }
    job->done.store(true);
  }).detach();
  look_condition waiting(source, [job] { return job->done.load(); });
  co_await waiting;
  if (job->failed) std::rethrow_exception(std::move(job->failed));  // the thread keeps nothing
  source.exclusively([&] {
    if (is_there()) return;  // another set was opened at the same time
    packing.emplace(std::move(in));
    unpacking.emplace(std::move(out));
    std::swap(before, job->before);
    std::swap(after, job->after);
    std::swap(of_graphs, job->of_graphs);
    kernels_ = job->kernels;
    no_kernels_ = job->no_kernels;
  });
}

inline void pack_memory::run_moves(const device::stream& on,
                                   device::pinned_vector<std::byte>& staging, call_graph* graph) {
  if (!kernels_ && !no_kernels_.empty() && moves.change()) {
    log::write(log::level::warning, "device " + std::to_string(on.device()) +
                                        ": what NCCL cannot do to elements is done by the host, "
                                        "which is slow, for there are no kernels: " +
                                        std::exchange(no_kernels_, {}));
  }
  moves.run(on, {kernels_.get(), &staging, graph});
}

}  // namespace cohort::nccl

#endif
