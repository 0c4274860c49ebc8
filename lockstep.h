/// Everything that Lockstep offers, and LibTorch: a user's program needs no other include. Lockstep's own
/// headers include less of LibTorch, for those whose builds count.
#pragma once

#include <torch/torch.h>

#include "lockstep/datasets/collated_dataset.h"
#include "lockstep/datasets/data_error.h"
#include "lockstep/datasets/generated_digits.h"
#include "lockstep/datasets/image_folder.h"
#include "lockstep/datasets/image_transform.h"
#include "lockstep/datasets/mnist.h"
#include "lockstep/datasets/tensor_dataset.h"
#include "lockstep/models/batch_norm.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/autocast.h"
#include "lockstep/runtime/capturable_step.h"
#include "lockstep/runtime/collectives.h"
#include "lockstep/runtime/grad_scaler.h"
#include "lockstep/runtime/skippable_step.h"
#include "lockstep/runtime/tf32.h"
#include "lockstep/strategies/losses.h"
#include "lockstep/strategies/make_strategy.h"
#include "lockstep/strategies/mirrored_strategy.h"
#include "lockstep/strategies/sync_batch_norm.h"
#include "lockstep/training/fused_adam.h"
#include "lockstep/training/fused_sgd.h"
#include "lockstep/training/learning_rate.h"
#include "lockstep/training/metrics.h"
