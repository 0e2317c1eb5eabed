// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Gate of the layer progress: the engine on Asio, futures, when_all, deadlines.

#include <cohort/progress/backoff.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/progress/when_all.hpp>
