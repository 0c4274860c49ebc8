/// Variables of parameter servers: how they are cut, placed, initialized and updated.
#pragma once

#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/parameter_server/variables/server_placement.h"
