// The one precompiled header: what most sources of the project include anyway. GCC instantiates what
// a precompiled header's inline functions need again in every source that uses it, which takes longer than
// most sources themselves: twice as long with the usual modules (linear.h, conv.h, sequential.h and such) as
// with these, and four times for torch/torch.h. A source that needs more of LibTorch includes it by itself.
#pragma once

#include <torch/data/example.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
