// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The part of an elected reduction that MPI does: between nodes, or because NCCL cannot.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/backend/extras.hpp>
#include <cohort/nccl/life/agreement.hpp>
#include <cohort/progress/look_task.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// Of one backend. Such an operation has two parts in the queue of the device. Between them it
/// holds all that was elected later.
///
/// 1. The first part reduces within the node, or only packs.
/// 2. Its pack goes through pinned memory, piece by piece, and MPI reduces it there.
/// 3. The second part broadcasts within the node, and unpacks.
class host_path final : public host_reducer {
 public:
  explicit host_path(device_plane& plane) noexcept : plane_(plane) {}

  [[nodiscard]] inline std::string refuses(const comm::device_call& what,
                                           const char* why) const override;
  [[nodiscard]] inline progress::look_task<> open(cohort::communicator over, turn place,
                                                  device_set& its) override;
  inline void take(elected_work& op, const device_set& set) override;
  inline void go_between(elected_work& op) override;
  [[nodiscard]] std::string in_words(const elected_work& op) const override {
    return op.by_host() ? "what MPI reduces of it" : "what MPI reduces of it between nodes";
  }

 private:
  /// One reduction of MPI, in a piece.
  struct reduction {
    std::size_t offset;
    std::size_t count;
    MPI_Datatype type;
    MPI_Op operation;
    int root;  // -1: all get the result
  };
  /// Of a pack, what is copied to the host and back at a time.
  struct piece {
    std::byte* at;
    std::size_t bytes;
    std::vector<reduction> parts;
  };
  [[nodiscard]] progress::look_task<> open_node(cohort::communicator node, turn place,
                                                device_set& its);
  [[nodiscard]] std::vector<piece> pieces_of_runs(const elected_work& op) const;
  [[nodiscard]] std::vector<piece> pieces_of_tensors(const elected_work& op) const;
  [[nodiscard]] progress::look_task<> reduce(std::vector<piece> pieces, cohort::communicator over);
  [[nodiscard]] progress::look_task<> reduce_piece(const piece& one, cohort::communicator over);

  device_plane& plane_;
};

// ---- implementation --------------------------------------------------------------------------

inline std::string host_path::refuses(const comm::device_call& what, const char* why) const {
  const bool captured = what.use != comm::device_use::run;
  if (why == nullptr) {
    const bool by_nodes = captured && plane_.options().hierarchical;
    return by_nodes ? "over nodes it goes through the host" : std::string();
  }
  if (!plane_.options().host_path) return why;
  if (captured) return std::string(why) + ", and MPI's part cannot be captured";
  for (const comm::tensor& one : what.tensors) {
    if (one.operation == MPI_OP_NULL) return std::string(why) + ", nor has MPI";
    if (one.size() > pack_memory::mpi_bytes) {
      return std::string(why) + ", and an element is larger than the memory on its way";
    }
  }
  return {};
}

/// Either all ranks have the communicators of their nodes or none has.
inline progress::look_task<> host_path::open(cohort::communicator over, turn place,
                                             device_set& its) {
  if (plane_.options().host_path) {
    auto for_mpi = comm::joint::duplicate(over);
    its.everybody = co_await for_mpi;
  }
  if (!plane_.options().hierarchical) co_return;
  auto duplicated = comm::joint::duplicate(over);
  cohort::communicator all = co_await duplicated;
  auto divided = comm::joint::split_nodes(all, plane_.options().node);
  cohort::communicator node = co_await divided;
  const bool flat = node.size() == all.size();
  if (!flat) {
    auto chosen = comm::joint::split(all, node.rank() == 0 ? 0 : -1);
    its.leaders = co_await chosen;
  }
  auto within =
      detail::caught(open_node(flat ? cohort::communicator() : node, std::move(place), its));
  detail::problem bad = co_await within;
  auto agreeing = detail::agree(all, std::move(bad), "the nodes' communicators were not made");
  co_await agreeing;
}

inline progress::look_task<> host_path::open_node(cohort::communicator node, turn place,
                                                  device_set& its) {
  if (!node) co_return;
  auto making = detail::make_all(node, plane_.sets().what_to_make(std::move(place)));
  std::vector<communicator> made = co_await making;
  its.node = std::move(made.front());
}

inline void host_path::take(elected_work& op, const device_set& set) {
  const comm::device_call& what = *op.what();
  const bool by_mpi = plane_.options().host_path && what.use == comm::device_use::run &&
                      is_reduction(what.kind) && detail::not_of_nccl(what) != nullptr;
  const bool by_nodes = set.node && what.kind == op_kind::all_reduce;
  if (!by_mpi && !by_nodes) return;
  if (!by_mpi) op.comm = set.node.state();
  op.go_in_parts(by_mpi);
}

inline void host_path::go_between(elected_work& op) {
  if (op.what() == nullptr || plane_.failed()) return plane_.come_back(op, nullptr);
  const device_set& set = plane_.sets()[op.what()->set];
  cohort::communicator over = op.by_host() ? set.everybody : set.leaders;
  if (!over) return plane_.come_back(op, nullptr);
  std::vector<piece> pieces = op.by_host() ? pieces_of_tensors(op) : pieces_of_runs(op);
  auto done = [plane = plane_.shared_from_this(), &op](std::exception_ptr why) {
    plane->come_back(op, std::move(why));
  };
  progress::begin_look_task(
      detail::at_next_look(plane_.source(), reduce(std::move(pieces), std::move(over))),
      {.verb = "a reduction on a device, in MPI", .owner = &plane_}, std::move(done));
}

// ---- pieces ----------------------------------------------------------------------------------

inline std::vector<host_path::piece> host_path::pieces_of_runs(const elected_work& op) const {
  std::vector<piece> pieces;
  for (const elected_runs::run& run : op.runs().all()) {
    const comm::tensor& first = op.what()->tensors[run.first];
    const mpi::element_kernels& of = *first.kernels;
    packs::cut(
        run.bytes / of.size, plane_.memory().after.size() / of.size,
        [&](std::size_t begin, std::size_t count) {
          pieces.push_back({op.buffer() + run.begin + begin * of.size,
                            count * of.size,
                            {{0, count, of.type(), of.operation(op.what()->reduction), -1}}});
        });
  }
  return pieces;
}

/// As much as fits is copied at once, and each tensor in it reduced by a call of its own: what lies
/// between them is no element.
inline std::vector<host_path::piece> host_path::pieces_of_tensors(const elected_work& op) const {
  std::vector<piece> pieces;
  const std::size_t room = plane_.memory().after.size();
  const auto add = [&](std::byte* at, std::size_t count, const comm::tensor& of, int root) {
    packs::cut(count, room / of.size(), [&](std::size_t begin, std::size_t part) {
      std::byte* const here = at + begin * of.size();
      const std::size_t bytes = part * of.size();
      if (pieces.empty() || static_cast<std::size_t>(here - pieces.back().at) + bytes > room) {
        pieces.push_back({here, 0, {}});
      }
      piece& last = pieces.back();
      const auto offset = static_cast<std::size_t>(here - last.at);
      last.bytes = offset + bytes;
      last.parts.push_back({offset, part, of.kernels->type(), of.operation, root});
    });
  };
  const int root = op.what()->kind == op_kind::reduce ? op.what()->root : -1;
  const auto add_all = [&](const auto&, const comm::tensor& one, std::byte* at) {
    if (op.what()->kind != op_kind::reduce_scatter) return add(at, one.count, one, root);
    for (int rank = 0; rank < op.comm->size; ++rank) {
      const std::size_t part = part_of(one.count, rank, op.comm->size);
      add(at, part, one, rank);
      at += part * one.size();
    }
  };
  op.runs().for_each_packed(op.what()->tensors, op.buffer(), add_all);
  return pieces;
}

/// One after the other through pinned memory, in the order of the packs, which is that of all
/// ranks of `over`.
inline progress::look_task<> host_path::reduce(std::vector<piece> pieces,
                                               cohort::communicator over) {
  const device::stream on = *plane_.memory().unpacking;
  // After a failure nothing is started any more: MPI may have the memory on the way for ever.
  const auto go_on = [this] {  // with the lock of a look
    if (plane_.failed())
      throw std::system_error(plane_.failed(), "MPI's part of a reduction on a device");
  };
  for (const piece& each : pieces) {
    go_on();
    device::check(cudaMemcpyAsync(plane_.memory().after.data(), each.at, each.bytes,
                                  cudaMemcpyDeviceToHost, on.get()),
                  "cudaMemcpyAsync", plane_.device());
    auto fetched = detail::reached(plane_.source(), on);
    co_await fetched;
    go_on();
    auto reducing = reduce_piece(each, over);
    co_await reducing;
    go_on();
    device::check(cudaMemcpyAsync(each.at, plane_.memory().after.data(), each.bytes,
                                  cudaMemcpyHostToDevice, on.get()),
                  "cudaMemcpyAsync", plane_.device());
    auto brought =
        detail::reached(plane_.source(), on);  // the next piece goes through the same memory
    co_await brought;
  }
}

/// All its parts are posted at once. Where that fails for one, MPI may still have those before it:
/// it ends when they do.
inline progress::look_task<> host_path::reduce_piece(const piece& whole,
                                                     cohort::communicator over) {
  struct posted {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
  };
  std::vector<posted> all(whole.parts.size());
  const auto post_all = [&] {
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const reduction& one = whole.parts[i];
      void* const at = plane_.memory().after.data() + one.offset;
      const auto count = static_cast<MPI_Count>(one.count);
      const bool receives = one.root < 0 || one.root == over.rank();
      const void* const from = receives ? MPI_IN_PLACE : at;
      if (code != MPI_SUCCESS) {
        // Nothing after one that has failed: the other ranks end with an error.
      } else if (one.root < 0) {
        code = mpi::post::iallreduce(from, at, count, one.type, one.operation, over.native(),
                                     &all[i].request);
      } else {
        code = mpi::post::ireduce(from, receives ? at : nullptr, count, one.type, one.operation,
                                  one.root, over.native(), &all[i].request);
      }
      all[i].code = code;
    }
  };
  std::error_code bad;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto reduced = comm::joint::request(over, [&](MPI_Request* request) {
      if (i == 0) post_all();
      *request = all[i].request;
      return all[i].code;
    });
    try {
      co_await reduced;
    } catch (const std::system_error& failed) {
      if (!bad) bad = failed.code();
    }
  }
  if (bad) throw std::system_error(bad, "MPI's part of a reduction on a device");
}

}  // namespace cohort::nccl

#endif
