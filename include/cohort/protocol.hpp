// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer protocol: how the ranks of a coordinator agree on what runs next. State machines
/// without MPI, Asio, threads or a clock: who uses one gives it the messages that have come and the
/// time, and sends what it answers. docs/design/protocol.md has the rules, by the labels that
/// comments cite.

#include <cohort/protocol/node.hpp>
#include <cohort/protocol/queues.hpp>
#include <cohort/protocol/validation.hpp>
