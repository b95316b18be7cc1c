/* Accepts `--segment=N` (topology/block of Slurm 23.11 and later) on an older Slurm.
 *
 * The number itself is checked here, at submission; whether it divides the job's node count is checked by
 * job_submit.lua in the controller, to which Slurm hands the option on. Placement does not change: the whole
 * rack is one block.
 *
 * Plugin argument: block=N, the number of nodes of the block.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(segment, 1);

static long block_nodes = 18;

static int take_segment(int value, const char *text, int remote)
{
	char *end = NULL;
	long nodes;

	(void)value;
	(void)remote;
	errno = 0;
	nodes = text ? strtol(text, &end, 10) : 0;
	if (nodes < 1 || errno || *end) {
		slurm_error("Invalid --segment specification");
		return -1;
	}
	if (nodes > block_nodes) {
		slurm_error("Invalid --segment specification: %ld nodes do not fit the block of %ld", nodes, block_nodes);
		return -1;
	}
	return 0;
}

static struct spank_option segment_option = {
	"segment", "segment_size", "Segment size in nodes; must fit the block", 1, 0, take_segment,
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	for (int i = 0; i < count; i++)
		if (!strncmp(arguments[i], "block=", 6))
			block_nodes = atol(arguments[i] + 6);
	if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR && spank_context() != S_CTX_REMOTE)
		return 0;
	return spank_option_register(spank, &segment_option) == ESPANK_SUCCESS ? 0 : -1;
}
