// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of `comm/communicator_state.hpp`, `comm/backend.hpp` and of the doorbells in
/// `comm/requests/source.hpp`.

#include <cohort/comm/creation.hpp>
#include <cohort/comm/detail/backend_opening.ipp>
#include <cohort/comm/mpi_blocking.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

namespace cohort::comm {

COHORT_INLINE doorbells::doorbells(request_source& source, const mpi::comm_ref& over,
                                   std::uint64_t choice, int node)
    : source_(source),
      base_(over.native()),
      rank_(over.rank()),
      entries_(static_cast<std::size_t>(over.size())),
      node_(entries_.size()),
      slot_(entries_.size(), -1) {
  try {
    mine_.bell = source.doorbell().address();
    mine_.bell.ipv4 = own_address();
  } catch (const std::system_error& no_socket) {
    log::write(
        log::level::warning,
        std::string("no doorbell, so idle engines will look now and then: ") + no_socket.what());
  }
  mine_.host = node >= 0 ? static_cast<std::uint64_t>(node) : process::host_id();
  mine_.choice = choice;
}

COHORT_INLINE void doorbells::meet(const mpi::comm_ref& over) {
  {
    const mpi::lock calls;
    mpi::check(MPI_Allgather(&mine_, sizeof(entry), MPI_BYTE, entries_.data(), sizeof(entry),
                             MPI_BYTE, over.native()),
               "MPI_Allgather");
  }
  std::map<std::uint64_t, int> first_on;
  for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
    node_[rank] = first_on.try_emplace(entries_[rank].host, static_cast<int>(rank)).first->second;
    if (entries_[rank].host == mine_.host) slot_[rank] = node_size_++;
  }
  if (node_size_ < over.size() && mine_.bell.port != 0) source_.doorbell().rung_from_afar();
  map_flags(over);
  if (flag* own = flag_of(rank_)) {
    const request_source::guard hold(source_);
    source_.bell().announce_through(own);
  }
}

COHORT_INLINE doorbells::~doorbells() {
  if (flag* own = flag_of(rank_)) {
    const request_source::guard hold(source_);
    source_.bell().no_longer_through(own);
  }
  if (page_ != nullptr) ::munmap(page_, page_bytes_);
}

COHORT_INLINE void doorbells::announce(int rank) const noexcept {
  const auto index = static_cast<std::size_t>(rank);
  if (const flag* parked = flag_of(rank)) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (parked->load(std::memory_order_seq_cst) == 0) return;
  }
  source_.bell().ring(entries_[index].bell, slot_[index] >= 0);
}

COHORT_INLINE doorbells::flag* doorbells::flag_of(int rank) const noexcept {
  const int slot = slot_[static_cast<std::size_t>(rank)];
  if (page_ == nullptr || slot < 0) return nullptr;
  return reinterpret_cast<flag*>(page_ + static_cast<std::size_t>(slot) * line);
}

COHORT_INLINE void doorbells::map_flags(const mpi::comm_ref& over) {
  // The page is named after the token of the node's lowest rank, which nobody can guess.
  const auto first =
      static_cast<std::size_t>(std::find(slot_.begin(), slot_.end(), 0) - slot_.begin());
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "/cohort-%016llx",
                static_cast<unsigned long long>(entries_[first].bell.token));
  const bool makes = static_cast<int>(first) == rank_;
  page_bytes_ = static_cast<std::size_t>(node_size_) * line;
  const auto map = [&](int flags) {
    const int fd = ::shm_open(name.data(), flags, S_IRUSR | S_IWUSR);
    if (fd < 0) return;
    if (!makes || ::ftruncate(fd, static_cast<off_t>(page_bytes_)) == 0) {
      void* mapped = ::mmap(nullptr, page_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (mapped != MAP_FAILED) page_ = static_cast<std::byte*>(mapped);
    }
    ::close(fd);
  };
  const mpi::lock calls;
  if (makes) map(O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
  MPI_Barrier(over.native());
  if (!makes) map(O_RDWR | O_CLOEXEC);
  // All or none: a rank that looks at flags must be seen by ranks that set them.
  int mapped = page_ != nullptr ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, over.native());
  if (makes) ::shm_unlink(name.data());
  if (mapped == 0 && page_ != nullptr) {
    ::munmap(page_, page_bytes_);
    page_ = nullptr;
  }
}

COHORT_INLINE std::uint32_t doorbells::own_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return 0;
  std::uint32_t found = 0;
  for (const ifaddrs* at = list; at != nullptr && found == 0; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_RUNNING) == 0) continue;  // a bridge of nobody, say
    const auto address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr;
    if ((ntohl(address) >> 24U) != 127) found = address;
  }
  ::freeifaddrs(list);
  return found;
}

COHORT_INLINE void backend_completion::operator()(std::error_code error) const {
  op_->leave_backend();
  op_->fail(error);
  engine_->complete(op_);
}

COHORT_INLINE bool backend_completion::in_look(std::error_code error) const {
  op_->fail(error);
  if (op_->waits_for_turn_ && op_->advance_ != nullptr) {
    try {
      if (op_->advance_(op_) && (op_->parts_ != 0 || op_->waits_for_turn_)) return false;
    } catch (...) {
      op_->fail_as_thrown();
    }
    if (op_->parts_ != 0) return false;  // part of a stage was posted: its requests come first
  }
  op_->waits_for_turn_ = false;
  op_->leave_backend();
  engine_->complete(op_);
  return true;
}

/// What the options say, or else the environment, now.
COHORT_INLINE backend_choice choice_of(const communicator_options& options) {
  if (options.backend != backend_choice::environment) return options.backend;
  const char* text = std::getenv("COHORT_BACKEND");
  const std::string_view said = text == nullptr ? "auto" : text;
  if (said == "auto") return backend_choice::automatic;
  if (said == "mpi") return backend_choice::mpi;
  if (said == "shm") return backend_choice::shm;
  if (said == "hierarchical") return backend_choice::hierarchical;
  throw error(errc::invalid_argument,
              "COHORT_BACKEND=" + std::string(said) + ": it may be auto, mpi, shm or hierarchical");
}

/// The same for the bytes of such a backend.
COHORT_INLINE std::size_t memory_of(const communicator_options& options) {
  if (options.shared_memory) return *options.shared_memory;
  const char* text = std::getenv("COHORT_SHM_MEMORY");
  if (text == nullptr || *text == '\0') return std::size_t{64} << 20U;
  const std::string_view said = text;
  std::size_t bytes = 0;
  const auto [stop, failed] = std::from_chars(said.data(), said.data() + said.size(), bytes);
  if (failed != std::errc{} || stop != said.data() + said.size()) {
    throw error(errc::invalid_argument,
                "COHORT_SHM_MEMORY=" + std::string(said) + " is no number of bytes");
  }
  return bytes;
}

COHORT_INLINE void communicator_state::open(mpi::comm data_, mpi::comm exchange_,
                                            const communicator_options& options_) {
  data = std::move(data_);
  exchange = std::move(exchange_);
  options = options_;
  plain = {data.native(), exchange.native(), data.rank(), data.size()};
  peers = plain.size;
  if (data.is_inter()) {
    const mpi::lock calls;
    mpi::check(MPI_Comm_remote_size(data.native(), &peers), "MPI_Comm_remote_size");
  }
  max_tag = mpi::max_tag();
  sequence.set(0);
  collectives = 0;
  adasums = 0;
  by_backend.reset();
  closing = false;
  queues = options.checks == checks::cross_rank;
  const bool blocking = options.backend == backend_choice::mpi_blocking;
  const bool is_alone = data.size() == 1 && options.backend != backend_choice::mpi;
  blocks.reset();
  if ((blocking || is_alone) && !data.is_inter() && options.checks == checks::local) {
    blocks = std::make_shared<mpi_blocking>(data.native());
    if (blocking) backend = blocks;
  }
  const bool may_choose = !blocking && options.backend != backend_choice::mpi &&
                          options.checks != checks::cross_rank && data.size() > 1;
  choosing = may_choose && !data.is_inter() ? backend_choosing::ahead : backend_choosing::over;
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = failure();
}

COHORT_INLINE void communicator_state::reserve_bells(const communicator_state& parent) {
  if (parent.bells) bell_ranks.reserve(static_cast<std::size_t>(parent.data.size()));
}

COHORT_INLINE void communicator_state::derive_bells(const communicator_state& parent) {
  bells = parent.bells;
  bell_ranks.clear();
  if (!bells || data.is_inter()) {
    bells.reset();
    return;
  }
  bell_ranks.resize(static_cast<std::size_t>(data.size()));
  const mpi::lock calls;
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group other = MPI_GROUP_NULL;
  mpi::check(MPI_Comm_group(data.native(), &own), "MPI_Comm_group");
  mpi::check(MPI_Comm_group(parent.data.native(), &other), "MPI_Comm_group");
  std::array<int, 64> mine;  // some at a time, for this must not need memory
  for (int first = 0; first < data.size(); first += static_cast<int>(mine.size())) {
    std::iota(mine.begin(), mine.end(), first);
    const int count = std::min(data.size() - first, static_cast<int>(mine.size()));
    mpi::check(MPI_Group_translate_ranks(own, count, mine.data(), other, bell_ranks.data() + first),
               "MPI_Group_translate_ranks");
  }
  MPI_Group_free(&own);
  MPI_Group_free(&other);
  for (int& rank : bell_ranks) rank = parent.bell_rank(rank);
}

COHORT_INLINE bool communicator_state::is_homogeneous() const {
  if (!bells) return false;
  std::map<int, int> on_node;
  for (int rank = 0; rank < data.size(); ++rank) ++on_node[node_of(rank)];
  return std::all_of(on_node.begin(), on_node.end(),
                     [&](const auto& node) { return node.second == on_node.begin()->second; });
}

/// Processors of this node.
COHORT_INLINE int usable_processors() noexcept {
  // Of the node, not of this process: the launcher may have bound each rank to one core.
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
}

COHORT_INLINE void communicator_state::close() noexcept {
  const request_source::guard hold(source);
  generation.fetch_add(1, std::memory_order_relaxed);
  closing = true;
  free_if_unused();
}

COHORT_INLINE void communicator_state::free_if_unused() noexcept {
  if (live != 0 || has_handles()) return;
  if (backend && backend->leave()) exchange.keep();
  backend.reset();
  offer.reset();
  bells.reset();
  bell_ranks.clear();
  data.reset();
  exchange.reset();
  closing = false;
  source.recycle(this);
}

COHORT_INLINE void communicator_state::fail(failure what) {
  log::write(log::level::error, what.text);
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = std::move(what);
}

COHORT_INLINE failure communicator_state::last_failure() const {
  const std::lock_guard hold(failure_mutex_);
  return last_failure_;
}

COHORT_INLINE communicator_statistics communicator_state::statistics() const {
  const request_source::guard hold(source);
  return {sequence.get(), by_backend.get(), backend ? std::string(backend->name()) : std::string()};
}

/// Throws where this thread may not make a communicator.
COHORT_INLINE void require_usable_mpi(const char* where) {
  if (!mpi::running()) {
    throw error(mpi::initialized() ? errc::finalized : errc::not_initialized, where);
  }
  if (!mpi::is_allowed_thread()) throw error(errc::wrong_thread, where);
}

}  // namespace cohort::comm

namespace cohort {

template <class Context>
communicator::communicator(Context& io, MPI_Comm original, const communicator_options& options,
                           const comm::backend_opening* opening) {
  comm::require_usable_mpi("cohort::communicator");
  mpi::comm data = mpi::comm::from(original);
  mpi::comm exchange = comm::communicator_state::exchange_of(data);
  const bool is_inter = data.is_inter();
  communicator made;
  std::shared_ptr<comm::doorbells> bells;
  communicator_options resolved = options;
  comm::on_all_or_none(exchange, [&] {
    auto& source = asio::use_service<comm::request_source>(io);
    resolved.backend = comm::choice_of(options);
    resolved.shared_memory = comm::memory_of(options);
    const bool may_choose = resolved.backend != backend_choice::mpi &&
                            resolved.backend != backend_choice::mpi_blocking &&
                            opening != nullptr && !comm::has_staged_verbs.load();
    const auto choice = may_choose ? static_cast<std::uint64_t>(resolved.backend) : 0;
    bells = std::make_shared<comm::doorbells>(source, exchange, choice, options.node);
    made = communicator(source.new_state());
  });
  bells->meet(exchange);
  made.state()->engine.set_oversubscribed(bells->node_size() > comm::usable_processors());
  made.state()->open(std::move(data), std::move(exchange), resolved);
  if (!is_inter) made.state()->bells = std::move(bells);  // whose ranks are those of messages
  made.state()->opening = opening;
  if (opening != nullptr) {
    opening->open_over_nodes(*made.state());
  } else if (made.rank() == 0 && (resolved.backend == backend_choice::shm ||
                                  resolved.backend == backend_choice::hierarchical)) {
    comm::detail::log_unopened(log::level::warning, *made.state(), "is to share memory");
  }
  std::swap(state_, made.state_);
}

COHORT_INLINE communicator communicator::reserve(const communicator& parent) {
  communicator made(parent.state()->source.new_state());
  made.state()->reserve_bells(*parent.state());
  return made;
}

COHORT_INLINE void communicator::fill(const communicator& parent, mpi::comm data,
                                      mpi::comm exchange) {
  state()->open(std::move(data), std::move(exchange), parent.options());
  state()->opening = parent.state()->opening;
  state()->derive_bells(*parent.state());
}

}  // namespace cohort
