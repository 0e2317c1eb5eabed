// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// expect: a remote function cannot return a view, a reference or a pointer
#include <cohort/cluster/function.hpp>

asio::awaitable<const double*> values();

std::size_t wrong() { return cohort::cluster::remote<&values>::index(); }
