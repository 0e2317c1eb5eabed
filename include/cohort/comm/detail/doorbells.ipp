// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/detail/doorbells.hpp`.

#include <cohort/comm/detail/doorbells.hpp>
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
#include <cstdio>
#include <string>

namespace cohort::comm {

COHORT_INLINE doorbells::doorbells(request_source& source, const mpi::comm_ref& over)
    : source_(source),
      base_(over.native()),
      rank_(over.rank()),
      entries_(static_cast<std::size_t>(over.size())),
      slot_(entries_.size(), -1) {
  try {
    mine_.bell = source.doorbell().address();
    mine_.bell.ipv4 = own_address();
  } catch (const std::system_error& no_socket) {
    log::write(
        log::level::warning,
        std::string("no doorbell, so idle engines will look now and then: ") + no_socket.what());
  }
  mine_.host = process::host_id();
}

COHORT_INLINE void doorbells::meet(const mpi::comm_ref& over) {
  {
    const mpi::lock calls;
    mpi::check(MPI_Allgather(&mine_, sizeof(entry), MPI_BYTE, entries_.data(), sizeof(entry),
                             MPI_BYTE, over.native()),
               "MPI_Allgather");
  }
  for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
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

}  // namespace cohort::comm
