/// Models: plain torch::nn modules that know no strategy.
#pragma once

#include "lockstep/models/batch_norm.h"
#include "lockstep/models/dlrm.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/models/wide_and_deep.h"
