/// Models as torch::nn modules. They need no strategy.
#pragma once

#include "lockstep/models/batch_norm.h"
#include "lockstep/models/dlrm.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_cache.h"
#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_cut.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/models/wide_and_deep.h"
