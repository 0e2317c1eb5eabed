// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What goes between tensors and what travels, and what happens to it on the way, by kernels or by
/// host code in the order of a stream; and the memory, the streams and the kernels for that.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend/elected_runs.hpp>
#include <cohort/nccl/backend/extras.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/progress/look_task.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// Copies pieces to pinned memory, has a function called there, and copies back: slow, and always
/// possible. Functions call nothing of CUDA.
class host_functions {
 public:
  /// Through `staging`, whose other uses have an order with `on`. What is captured in `graph`, if
  /// it is not null, goes through the graph's staging, and its functions live as long as the graph.
  host_functions(const device::stream& on, device::pinned_vector<std::byte>& staging,
                 call_graph* graph)
      : on_(on), graph_(graph), staging_(graph != nullptr ? *graph->staging : staging) {}

  /// `count` elements. Without `from` nothing is read.
  struct range {
    void* to;
    std::size_t to_size;  ///< of an element
    const void* from;
    std::size_t from_size;
    std::size_t count;
  };
  /// `function(to, from, elements)`, both in pinned memory: in one place if their sizes are equal.
  template <class Function>
  void apply(const range& over, Function function);

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind way) const {
    device::check(cudaMemcpyAsync(to, from, bytes, way, on_.get()), "cudaMemcpyAsync",
                  on_.device());
  }
  template <class Function>
  struct host_call {
    Function function;
    void* to;
    const void* from;
    std::size_t count;
    void run() { function(to, from, count); }
  };

  const device::stream& on_;
  call_graph* graph_;
  device::pinned_vector<std::byte>& staging_;
};

template <class Function>
void host_functions::apply(const range& over, Function function) {
  constexpr std::size_t alignment = 64;
  const bool in_place = over.from == nullptr || over.from_size == over.to_size;
  const std::size_t width = in_place ? over.to_size : over.from_size + over.to_size;
  const std::size_t lost = in_place ? 0 : alignment;
  if (staging_.size() < width + lost) {  // it was left to MPI after a failure, or a huge element
    throw cohort::error(errc::aborted, "elements of " + std::to_string(width) + " bytes, and " +
                                           std::to_string(staging_.size()) +
                                           " bytes of pinned memory on their way");
  }
  const std::size_t most = (staging_.size() - lost) / width;
  for (std::size_t first = 0; first < over.count; first += most) {
    const std::size_t part = std::min(most, over.count - first);
    std::byte* const in = staging_.data();
    const std::size_t begin = (part * over.from_size + alignment - 1) / alignment * alignment;
    std::byte* const out = in_place ? in : in + begin;
    if (over.from != nullptr) {
      copy(in, static_cast<const std::byte*>(over.from) + first * over.from_size,
           part * over.from_size, cudaMemcpyDeviceToHost);
    }
    auto todo = std::make_unique<host_call<Function>>(host_call<Function>{function, out, in, part});
    host_call<Function>* const one = todo.get();
    void (*run)(void*) = [](void* argument) { static_cast<host_call<Function>*>(argument)->run(); };
    if (graph_ != nullptr) {
      graph_->host_calls.emplace_back(std::move(todo));
    } else {
      run = [](void* argument) {
        const std::unique_ptr<host_call<Function>> own(static_cast<host_call<Function>*>(argument));
        own->run();
      };
    }
    device::check(cudaLaunchHostFunc(on_.get(), run, one), "cudaLaunchHostFunc", on_.device());
    static_cast<void>(todo.release());  // the stream has it, or the graph
    copy(static_cast<std::byte*>(over.to) + first * over.to_size, out, part * over.to_size,
         cudaMemcpyHostToDevice);
  }
}

/// Collects moves, and queues all of them on a stream.
///
/// 1. With kernels: one launch for each kind of change, of which none is one, or a few if there are
///    many tensors.
/// 2. Without, elements that stay what they are go in one batch of copies; for the others host code
///    does it in the order of the stream, tensor by tensor. The results are the same to the bit, so
///    it does not matter which ranks have kernels.
class pack_moves {
 public:
  void clear() noexcept { all_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// Whether something is done to elements, beyond copying them and filling in zeros.
  [[nodiscard]] bool change() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [](const move& one) {
      return one.changes() && !one.is_zero() && !one.by_host;
    });
  }

  /// What a tensor contributes, or neutral elements, to where it is reduced or sent.
  void bring(const comm::tensor& one, const treatment& how, void* to, reduction_code reduction) {
    if (one.count == 0) return;
    all_.push_back(
        {one.in, to, one.count, &one, how.as, how.scale_before, 1, reduction, true, how.by_host});
  }
  /// `count` elements of a result to its tensor, if that is wanted.
  void take(const comm::tensor& one, const treatment& how, const void* from, std::size_t count) {
    if (one.out == nullptr || count == 0) return;
    if (from == one.out && !how.finishes()) return;
    // One step of the two: no number is rounded twice.
    const bool both = how.divide_after != 1 && how.scale_after != 1;
    const double factor =
        both ? how.scale_after / static_cast<double>(how.divide_after) : how.scale_after;
    all_.push_back({from, one.out, count, &one, how.as, factor, both ? 1 : how.divide_after,
                    reduction_code::no_reduction, false, how.by_host});
  }

  struct means {
    const move_kernels* kernels = nullptr;
    device::pinned_vector<std::byte>* staging = nullptr;
    call_graph* graph = nullptr;
  };
  /// Queues them in any order, and forgets them. Throws std::system_error; some may be queued then.
  void run(const device::stream& on, const means& with);

 private:
  struct move {
    const void* from;
    void* to;
    std::size_t count;
    const comm::tensor* tensor;
    element as;  // of what travels
    double factor;
    std::int64_t divisor;
    reduction_code reduction;
    bool in;
    bool by_host;

    [[nodiscard]] std::size_t bytes() const noexcept { return count * tensor->size(); }
    [[nodiscard]] bool casts() const noexcept { return tensor->wire != nullptr; }
    [[nodiscard]] bool changes() const noexcept {
      return from == nullptr || casts() || factor != 1 || divisor != 1;
    }
    [[nodiscard]] bool is_zero() const noexcept {
      return from == nullptr && (reduction == reduction_code::no_reduction || is_sum(reduction));
    }
  };
  struct group {
    move_kernels::change how;
    std::vector<move_kernels::part> parts;
  };
  [[nodiscard]] static move_kernels::change change_of(const move& one);
  void add_part(const move_kernels::change& how, const move_kernels::part& one);
  static void on_host(host_functions& functions, const move& one);

  std::vector<move> all_;
  std::vector<device::batch_part> copies_;  // empty between, for their memory
  std::vector<group> groups_;
  std::size_t used_ = 0;  // of these
};

inline move_kernels::change pack_moves::change_of(const move& one) {
  move_kernels::change how{one.as.type, one.as.type, one.factor, one.divisor, 0};
  if (one.casts()) {
    const ncclDataType_t wide =
        one.tensor->wire->element == element_type::float64 ? ncclFloat64 : ncclFloat32;
    (one.in ? how.from : how.to) = wide;
  }
  if (one.from == nullptr && !one.is_zero()) {
    std::array<std::byte, 16> bits{};
    one.tensor->kernels->fill(bits.data(), 1, one.reduction);
    std::memcpy(&how.neutral, bits.data(), sizeof how.neutral);
  }
  return how;
}

inline void pack_moves::add_part(const move_kernels::change& how, const move_kernels::part& one) {
  std::size_t at = 0;
  while (at < used_ && !(groups_[at].how == how)) ++at;
  if (at == used_) {
    if (used_ == groups_.size()) groups_.emplace_back();
    groups_[used_++].how = how;
  }
  groups_[at].parts.push_back(one);
}

inline void pack_moves::on_host(host_functions& functions, const move& one) {
  const comm::tensor& tensor = *one.tensor;
  if (one.from == nullptr) {
    functions.apply({one.to, tensor.size(), nullptr, 0, one.count},
                    [fill = tensor.kernels->fill, of = one.reduction](
                        void* to, const void*, std::size_t n) { fill(to, n, of); });
  } else if (one.casts() && one.in) {
    functions.apply({one.to, tensor.size(), one.from, tensor.wire->size, one.count},
                    [pack = tensor.wire->pack, by = one.factor](
                        void* to, const void* from, std::size_t n) { pack(to, from, n, by); });
  } else if (one.casts()) {
    functions.apply(
        {one.to, tensor.wire->size, one.from, tensor.size(), one.count},
        [unpack = tensor.wire->unpack, by = one.factor, divisor = one.divisor](
            void* to, const void* from, std::size_t n) { unpack(to, from, n, by, divisor); });
  } else {
    functions.apply({one.to, tensor.size(), one.from, tensor.size(), one.count},
                    [kernels = tensor.kernels, by = one.factor, divisor = one.divisor](
                        void* to, const void* from, std::size_t n) {
                      if (divisor != 1) return kernels->divide(to, from, n, divisor);
                      kernels->scale(to, from, n, by);
                    });
  }
}

inline void pack_moves::run(const device::stream& on, const means& with) {
  copies_.clear();
  for (group& each : groups_) each.parts.clear();
  used_ = 0;
  host_functions functions(on, *with.staging, with.graph);
  for (const move& one : all_) {
    if (with.kernels != nullptr && !one.by_host) {
      const std::size_t elements = one.bytes() / size_of(one.as.type);
      add_part(change_of(one), {one.from, one.to, elements});
    } else if (!one.changes()) {
      copies_.push_back({one.to, one.from, one.bytes()});
    } else if (one.is_zero()) {
      device::check(cudaMemsetAsync(one.to, 0, one.bytes(), on.get()), "cudaMemsetAsync",
                    on.device());
    } else {
      on_host(functions, one);
    }
  }
  device::copy_batch(on, copies_);
  for (std::size_t i = 0; i < used_; ++i) with.kernels->run(on, groups_[i].how, groups_[i].parts);
  clear();
}

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
struct pack_taking {
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
  auto taken = std::make_shared<detail::pack_taking>();
  const std::size_t after_bytes = options.uses_mpi() ? mpi_bytes : staging_bytes;
  std::thread([taken, in, out, domain, after_bytes, options, load, device] {
    try {
      taken->before = device::pinned_vector<std::byte>(staging_bytes, in);
      taken->after = device::pinned_vector<std::byte>(after_bytes, out);
      taken->of_graphs = std::make_shared<device::pinned_vector<std::byte>>(staging_bytes, domain);
      if (options.kernels != kernel_use::off) taken->take_kernels(device, options, load);
    } catch (...) {
      taken->failed = std::current_exception();
    }
    taken->done.store(true);
  }).detach();
  look_condition waiting(source, [taken] { return taken->done.load(); });
  co_await waiting;
  if (taken->failed) std::rethrow_exception(std::move(taken->failed));  // the thread keeps nothing
  source.exclusively([&] {
    if (is_there()) return;  // another set was opened at the same time
    packing.emplace(std::move(in));
    unpacking.emplace(std::move(out));
    std::swap(before, taken->before);
    std::swap(after, taken->after);
    std::swap(of_graphs, taken->of_graphs);
    kernels_ = taken->kernels;
    no_kernels_ = taken->no_kernels;
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
