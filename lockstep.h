/// Everything that Lockstep offers, and LibTorch: your program needs no other include. Lockstep's own headers
/// include less of LibTorch; include those of single layers, such as lockstep/strategies.h, if build times
/// matter to you.
#pragma once

#include <torch/torch.h>

#include "lockstep/datasets.h"
#include "lockstep/models.h"
#include "lockstep/parameter_server.h"
#include "lockstep/runtime.h"
#include "lockstep/strategies.h"
#include "lockstep/training.h"
